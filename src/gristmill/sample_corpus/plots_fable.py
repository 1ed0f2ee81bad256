# ruff: noqa: E501  (a variant is a line, however long)
"""Plots with a moral: races, wishes, boasting, lies, sharing, trades. The notation is described in beats.py and plots_everyday.py."""

PLOTS = """
= the-race
@opening

{hero} was fast, and {he} knew it. “Nobody is faster than I am,” {he} said to everyone {at}.
{He} was the fastest {kind} in {there}, and {he} told everybody so, {few} times a day.

--
One {season} day, there was a great race from {place} to {place2}. The prize was {a:quality#1} {prize#1}.
On {weekday}, everyone came to {place} for the big race. {weather} The winner would get {a:quality#1} {prize#1}.

“I will win before you have tied your shoes,” said {hero} to {friend}. {friend} only smiled. “We will see,” {f.he} said.
{friend} was there too. {f.He} was small, and {f.his} legs were short. “You?” laughed {hero}. “You will get there [next week|by winter]!”

“Ready, steady, go!” called {elder}. {sound}! {hero} shot off like an arrow.
{elder} lifted {a:color} flag. “One, two, three!” And they were off.

--
Soon {hero} was far ahead. “I have time,” {he} thought. So {he} stopped to [eat {s:food#1}|pick {s:flower#1}|look at {himself} in the water].
After {num} minutes, {hero} looked back. Nobody was there. “I can rest a little,” {he} thought and lay down under {a:tree#1}.

But {friend} walked on, step by step. {f.He} did not stop for {s:food#2}, and {f.he} did not stop for {a:wild}.
{friend} did not run fast, but {f.he} never stopped. One foot, the other foot, one foot, the other foot.

--
{hero} ran on. Then {he} heard somebody cry. {third} had fallen and hurt {t.his} knee. {hero} looked at the finish. {He} looked at {third}. Then {he} turned back. “But you will lose!” said {third}. “Yes,” said {hero}. “Lean on me.”
When {hero} looked up again, the sun was low. Far ahead, near {place2}, {he} saw {friend}. {hero} ran as {he} had never run before, but it was too late.
Suddenly {hero} heard people clapping. {He} jumped up and ran like the wind. But when {he} came to {place2}, {friend} was already there.

{friend} won the {prize#1}. {hero} came last, [but {elder} shook {his} hand first|and {he} was quiet for once].
“The winner is {friend}!” called {elder}. {hero} swallowed. Then {he} went to {friend} and said, “Well done. You were better.”

“Do you want to know my secret?” said {friend}. “I am not fast. I only [go on|keep going].” “Will you teach me that?” asked {hero}.
{friend} broke off a piece of the cake that came with the prize and gave it to {hero}. “Next time we run together,” {f.he} said.

--
Slow and steady wins the race, but [kindness wins a friend|a good loser wins, too].
Since then, {hero} has still been fast. But {he} [does not talk about it anymore|looks back to see who needs help].
@treat

@ending

= three-wishes
@opening

@habit

--
One {season} day, {hero} saved {a:size_small} {wisher#1} that was caught in a net {at}. “Thank you,” said the {wisher#1}. “You have three wishes.”
{hero} found {a:quality} bottle {at}. {He} pulled out the cork, and — {poof}! — out came {a:size_small} {wisher#1}. “You may wish for three things,” it said.

“Three wishes!” cried {hero}. “Then I wish for [a mountain of {s:food#1}|all the {s:food#1} in the world]!” {poof}! There they were, up to the roof.
{hero} did not think long. “I want {bignum} {s:toy#1},” {he} said. {poof}! Now there were {s:toy#1} everywhere.

--
{hero} ate {few}, and then {num}, and then {his} stomach hurt. [{parent} could not even open the door.|There was no room left to sit.]
It was fun for an hour. But soon nobody could find the bed, and {parent} fell over {a:quality} {house}.

“That was a silly wish,” thought {hero}. “Now I wish that I were [as big as a house|invisible|the {job#1}|as rich as a king]!” {poof}!
“The second wish must be better,” {he} said. “I want to {dream}!” {poof}! And so it was.

At first it was wonderful. But {friend} [did not recognize {him}|was afraid of {him}|could not play with {him}] and ran away. @sad
But it was lonely. Nobody could play {game} with {him}, and {friend} looked for {him} {at2} and called {his} name. @sad

--
@thought

“What do I really need?” {hero} asked. {He} thought of {parent}, of {friend}, and of the smell of {smell}.
Only one wish was left. {hero} sat {at3} and thought until the stars came out.

“I wish that everything were as it was yesterday,” {he} said, “and that {friend} were [here|not lonely either].” {poof}!
“My last wish is for somebody else,” {he} said. “[{elder} is ill. Please make {e.him} well again.|Let everyone in {there} have enough to eat this winter.] And let me be {hero} again.”

“That was a good wish,” said the {wisher#1} and was gone.
There was a soft light, and then it was quiet. The magic was over, and everything was right.

--
{friend} came running. “Where have you been?” {f.he} asked. “Far away,” said {hero}, “and I do not want to go back.”
{hero} ran home. {parent} had made {treat}, and it tasted better than anything {he} had ever wished for.

Be careful what you wish for. The best things [are already at home|cost no wish at all].
@ending
@night

= crying-wolf hero=child worlds=farm,village,mountain
@opening

{He} had to watch the {s:herd#1} {at}, and that was [dull|boring|the dullest job in the world].
It was {his} job to watch the {s:herd#1} of {there}. All day long nothing happened.

--
“I will have some fun,” thought {hero}. “Help!” {he} shouted. “A wolf! A wolf!”
One {season} day, {he} had an idea. “Wolf!” {he} cried as loudly as {he} could. “The wolf is here!”

{parent} came running with {a:tool#1}. {friend} came with {a:tool#2}. The {job_or_wild} came with {a:tool#3}. There was no wolf.
Everyone dropped what they were doing. {C:few} neighbors came up the hill, out of breath, with {s:tool#1} and {s:tool#2}.

{hero} laughed and laughed. “There is no wolf! You should see your faces!” {parent} did not laugh.
“Where is the wolf?” asked {friend}. “It was only a joke,” said {hero}. “That was not funny,” said {friend}.

--
A few days later, {he} did it again. “Wolf! Wolf!” Again they all came, and again there was nothing but grass.
And because it had been such fun, {he} shouted again the next {weekday}. They came a second time, but they were slower, and they were angry.

?
“If you lie today,” said {elder}, “who will believe you tomorrow?” But {hero} did not listen.
@wisdom

Then, one evening, {hero} heard a growl. Two yellow eyes shone [between the trees|behind the rocks]. It was a real wolf!
But on {weekday}, something gray crept out of the bushes. It had sharp teeth. This time it was true.

“Wolf!” cried {hero}. “Please help! It is really a wolf!” But nobody came. “There {he} goes again,” they said down below and went on eating their {treat}.
{hero} shouted until {he} was hoarse. Down below, {friend} heard it. “I will not be fooled three times,” {f.he} thought.

--
The {s:herd#1} ran in all directions. {hero} climbed {a:tree#1} and sat there until morning. {C:few} of the {s:herd#1} were gone.
{hero} waved {his} {clothes#1}, threw stones and made a great noise, and at last the wolf went away. But {few} {s:herd#1} had run off into the dark.

In the morning, {parent} found {him}. “I am so sorry,” said {hero}. “I will never lie again.” They searched {at2} and {at3}, and by evening they had found all the {s:herd#1}.
{hero} told them everything, and this time {he} did not leave anything out. “We will look for them together,” said {elder}. They found the last one {at2}.

It took a long time until everybody trusted {hero} again. But {he} told the truth every day, and little by little they did.
Nobody believes a liar, even when the wolf is real. {hero} never forgot it.

= lazy-winter hero=beast season=autumn
@opening

It was autumn. {weather} Everybody was busy, because winter was coming.
Autumn had come. {weather} It was time to fill the pantry.

{friend} gathered {s:food#1} from morning to night. {third} carried {s:food#2}. But {hero} lay in the sun.
All day long, {friend} and {third} [carried|stored|dried] {s:food#1} and {s:food#2}. And {hero}? {hero} played the {instrument#1}.

--
“Come and help us,” said {friend}. “Tomorrow,” said {hero} and yawned. “Today is too nice for work.”
“What will you eat when it snows?” asked {third}. “Snow?” said {hero}. “I don't see any snow. Do you?”

The next day, {friend} asked again. “Tomorrow,” said {hero}. And the next day, and the day after that.
{friend} had {num} baskets, then {bignum}. {hero} had a song with {few} verses.

Then the wind turned. In one night, the world went white.
One morning, {hero} woke up and {his} nose was cold. Snow! It lay as high as the door.

--
{hero} looked in {his} cupboard. There was one {food#1}, and it was moldy. After {few} days, even that was gone.
{hero} dug in the snow and found {a:small#1} and {a:quality} leaf. You cannot eat that.

@sadness

Hungry and ashamed, {he} {went} to {friend}'s house. There was light in the window, and it smelled of {smell}.
{He} stood before {friend}'s door for a long time. Then {he} knocked, very softly.

“I have been foolish,” said {hero}. “I have nothing to give. May I come in?”
“You were right,” said {hero}, “and I was lazy. I am {unhappy#1} and hungry.”

--
{friend} and {third} looked at each other. “Sit down,” said {friend}. “There is soup for three. But you must [wash the dishes|sing for it].”
“[Last summer your songs made our work easier|A house is warmer with three],” said {third}. “Come in. But next autumn you will carry the heaviest basket.”

So {hero} swept the floor, carried wood and played the {instrument#1} every evening. It was the shortest winter they could remember.
All winter long, {hero} told stories about {s:wonder} and {s:animal}, and {he} never left a dish unwashed.

And when autumn came again, who was the first one up, with the biggest basket? It was {hero}.
The next autumn, {hero} gathered more than anyone: {num} baskets of {s:food#1} and {num} of {s:food#2}. One of them {he} gave to {friend}.

--
There is a time to play and a time to work. [And it is best to do both with friends.|A wise {kind} knows which is which.]
@ending

= trade-chain
@opening

?
@weather

--
{hero} had nothing but {a:quality#1} {small#1}. {He} wanted to give {elder} a present, but {he} had no money.
It was {elder}'s birthday on {weekday}, and {hero} had only {a:color#1} {small#1}. “That is not a present,” {he} thought and {went} off.

First {he} met {a:job#1}. “What a nice {small#1}!” said the {job#1}. “I have been looking for one all day. I will give you {a:tool#1} for it.”
{C:at} stood {a:job#1} who looked {unhappy#1}. “I have lost my {small#1},” said the {job#1}. “Take mine,” said {hero}. So {he} got {a:tool#1} for it.

--
Then {he} met {a:job#2}. “My {tool#1} is broken,” said the {job#2}, “and I cannot work.” “Take mine,” said {hero}, and the {job#2} gave {him} {a:quality} {clothes#1}.
A little later, {he} saw {a:job#2} who needed {a:tool#1}. “Here you are,” said {hero}. “And here you are,” said the {job#2} and gave {him} {a:color} {clothes#1}.

{C:at2} sat {third}. {t.He} was shivering. {hero} gave {t.him} the {clothes#1}. “I have only {num} {s:food#1},” said {third}, “but you may have them all.”
Then it began to rain. {third} came along without {a:clothes#1}, so {hero} gave {t.him} the one {he} had. {third} gave {him} a basket with {num} {s:food#1}.

With the {s:food#1} {he} {went} on. {friend} had not eaten since breakfast. “[Please|Oh], may I have some?” “Take them,” said {hero}. {friend} gave {him} a {songbird#1} that could sing {few} songs.
At {clock}, {he} came to {friend}'s house. {friend} had {bignum} guests and nothing to give them. So {hero} gave {f.him} the {s:food#1} and got {a:quality} {toy#1}.

--
“Now I have a present,” thought {hero}. But on the last bit of the way, a child was crying. {hero} could not pass by. And so {he} came to {elder} with empty hands.
{hero} was almost at {elder}'s door when {he} saw a little {kind} who had nothing to play with at all. {He} sighed. Then {he} gave {his} present away.

“I have nothing for you,” said {hero}. @sad “I had {a:small#1}, and then {a:tool#1}, and then {a:clothes#1}, and then {s:food#1}, and now I have nothing.”
“I wanted to bring you something,” said {hero}, “but everybody needed it more.” And {he} told the whole story.

{elder} laughed. “Nothing?” {e.he} said. “Look out of the window.” There they all came: the {job#1}, the {job#2}, {third} and {friend}, with {s:food#2} and {treat}.
“That is the best story I have ever been given,” said {elder}. And then there was a knock at the door. {friend} and {third} and the {job#2} had come to say thank you.

--
@fun

Whoever gives with both hands [never has empty ones|always has a hand free for a friend].
@ending
@night

= sharing numbers=sharing
@opening

?
@habit

--
One {season} day, {parent} baked {s:bake#1}. “Here are {total} for you,” {p.he} said. {hero} put them in {a:quality} basket.
{hero} had {total} {s:bake#1}. {He} counted them twice, because {he} liked counting as much as eating.

“I will eat them all by myself,” {he} thought and {went} to {place}.
{He} wanted to eat them {at}, where nobody would see {him}.

?
@sight

--
There {he} met {friend}. “Mmm,” said {friend}, “what smells so good?” {hero} hid the basket behind {his} back. “Nothing,” {he} said.
But {friend} was there. {f.He} looked at the basket, and {f.his} stomach rumbled. “I have not eaten since yesterday,” {f.he} said.

{hero} sat down behind {a:tree} and ate one. It did not taste as good as {he} had thought. “Why not?” {he} wondered.
{hero} turned around and began to eat alone. But {he} felt {friend}'s eyes on {his} back, and the {bake#1} stuck in {his} throat.

@thought

--
Then {he} {went} back. “Let us share,” {he} said. “{C:total} minus one is {rest}. There are three of us, with {third}. So everybody gets {each}.”
“Come here, all of you!” called {hero}. “One I have eaten, so {rest} are left. We are three: {friend}, {third} and I. That makes {each} for everyone.”

“You are good at arithmetic,” said {friend} with {f.his} mouth full.
{third} counted too. “{C:each}, {each}, {each} — it is right!” {t.he} said.

“I have something, too,” said {third} and brought {s:food#2}. And the {job_or_wild} brought {drink}. Suddenly it was a feast.
{friend} ran home and came back with {treat}, and {third} brought {a:size} {food#2}. Now there was more than before!

--
And the strange thing was: {each} {s:bake#1} with friends [tasted better than {total} alone|filled {him} more than {total} alone].
“Do you know what?” said {hero}. “{C:each} taste better than {total}.” Everyone laughed, but it was true.

When you share, you have less in your basket and more [in your heart|friends at your table].
@fun
@glad

@ending
@night

= the-boaster hero=beast
Once upon a time, there was {a:kind} [named|called] {hero} who had the most beautiful {beauty#1} in {there}. And {he} knew it.
In {home}, there lived {a:kind} [named|called] {hero}. {He} was proud of {his} {beauty#1} and talked of nothing else.

“Look at my {beauty#1}!” {he} said to {a:wild}. “Have you ever seen anything so fine?” {He} said it in the morning, at noon and at night.
All day long, {he} looked at {himself} in the water. “How lucky you all are,” {he} said, “that you can look at me!”

--
{friend} had no such {beauty#1}. {f.He} was small and gray and spent the day {hobby#1}. “Poor {friend},” said {hero}. “You are so plain.”
“What can you do with it?” asked {friend} one {season} day. “Do with it?” said {hero}. “I can be admired!”

“I would rather have good ears,” said {friend} {adverb}. {hero} laughed at {f.him}.
“A fine {beauty#1} will not keep you dry,” said {elder}. But {hero} was not listening. {He} was looking at {himself}.

--
One day, a [hawk|wildcat|pack of wild dogs] came to {place}. {friend} heard it first. “Run!” {f.he} cried, and everybody ran.
Then, one {season} night, there was a fire {at}. “Run, run!” called {friend}, who had smelled the smoke.

But {hero}'s {beauty#1} caught in the thorns. {He} pulled and pulled and could not get free.
{hero} ran too, but {his} {beauty#1} got stuck between two branches. “Help!” {he} cried. “I can't move!”

{friend} heard {him} and came back. {f.He} was small enough to creep under the thorns. {f.He} gnawed and bit until {hero} was free.
Who came back? It was little gray {friend}. “Hold still,” {f.he} said and bit through the branches, one after the other.

--
They ran to {place2} and were safe. But {hero}'s {beauty#1} looked [like an old broom|torn and dirty]. {He} looked into the water, and for once {he} said nothing.
When it was over, {hero} hung {his} head. “You saved me,” {he} said, “and I laughed at you. I am sorry.”

“It will grow again,” said {friend}. “And you have nice eyes when you are not bragging.”
“You have something finer than a {beauty#1},” said {hero}. “You have a brave heart.” {friend} turned as red as {a:food}.

@thanks

--
It is not what you look like, but [what you do|how kind you are], that makes you beautiful.
@ending

= old-machine hero=child
@opening

@habit

--
Behind {a:quality} {house#1} in the attic, {hero} found an old robot. It was rusty, and one arm was missing.
One {season} day, {hero} saw something shiny {at}. It was a robot that somebody had thrown away.

“Does it still work?” asked {friend}. {hero} turned a key. {sound}! Nothing more.
{hero} pressed {a:color} button. {sound} … {sound} … “Hel-lo,” said the robot, and then it was silent again.

“We can repair it,” said {hero}. “{elder} has {s:tool#1} and a lot of screws.” So they pulled it home in {a:quality} wagon.
“It is only scrap metal,” said {third}. But {hero} thought that it looked {unhappy#1}.

--
They worked for {num} days. They used {a:small#1}, {a:small#2}, {a:tool#1} and the inside of {a:quality} clock.
{elder} showed them how. “This wheel turns that wheel,” {e.he} explained, “and that one lifts the arm. It needs oil, like {a:animal} needs water.”

The first time, the robot only said “{sound}.” The second time, it {robot_mishap}. “Don't give up,” said {friend}.
At first, it walked backwards. Then it {robot_mishap}. {friend} laughed so hard that {f.he} fell off {f.his} chair.

The third time, two lights came on. “Good mor-ning,” said the robot. “I am num-ber {bignum_digits}. What is your name?”
Then {hero} changed one last screw. The robot lifted its head. “Thank you,” it said. “I have been a-sleep for {bignum} years.”

--
“What can you do?” asked {hero}. “I can count,” said the robot. “One plus two is three. Three plus four is seven. Seven plus eight is fif-teen.”
“Can you play {game}?” asked {friend}. “No,” said the robot, “but I can learn.” And it learned fast.

But the next day, the robot stood {at} and did not move. “I have nobody to work for,” it said. “I am use-less.”
“What is that feeling?” asked the robot one evening. “When you go to school, there is an emp-ty place here.” It pointed at its chest. “You miss us,” said {hero}.

“Then come with us,” said {hero}. They took it to {place2}. There, {elder} needed somebody to [read to the little ones|carry books|water the flowers].
“You don't have to be useful,” said {hero}. “You are our friend. But if you want to help, {elder} needs somebody who {robot_job}.”

--
Now the robot [reads stories|waters the {s:flower}|counts the ducks] every day, and it has learned to laugh. It sounds like {sounds_like}.
Soon the robot had {num} friends and {a:color} {clothes}. It was never useless again.

Nothing is too old to be [loved|mended] and nobody is too old to learn.
@ending
@night

= the-library hero=child
@opening

?
@weather

--
{hero} did not like to read. “The letters jump around like {s:animal#1},” {he} said.
Reading was hard for {hero}. When it was {his} turn at school, {his} ears grew hot.

One {season} day, it began to rain, and {hero} ran into the library to stay dry. It smelled of [old books|paper and dust|floor wax]. {elder} sat behind a [big|wide|tall] desk.
“Would you help me on {weekday}?” asked {elder}, who worked in the library. “The books need dusting.” {hero} said yes, because {he} was polite.

--
In a corner sat {a:size_small} dog named {pet#1}. “{pet#1} loves stories,” said {elder}, “but I have lost my glasses. Could you read to it?”
Between the shelves lay an old dog, {pet#1}. “Nobody reads to {pet#1} anymore,” said {elder} and gave {hero} a thin book.

{hero} looked left and right. Nobody was listening, only the dog. “‘The {animal#2},’” {he} read {sadly}, “‘had … a … {color#1} … {clothes#1}.’” {pet#1} wagged its tail.
“I read very slowly,” {hero} told the dog. {pet#1} put its head on {his} knee. It had time. So {hero} began: “‘Once … there … was … {a:wonder#1} …’”

When a word was too long, {he} took it apart, like a [puzzle|clock|tower of blocks]. {long_word} {pet#1} did not mind waiting.
{He} made {num} mistakes, and {pet#1} did not laugh once. At the end of the page, {hero} wanted to know what came next.

--
The next day, {he} came back. They read about {a:wonder#1} who {dream_past}. On {weekday} they read about {town}, and after that about {s:animal#3}.
From then on {hero} came every day at {clock}. The books grew thicker: first {num} pages, then {bignum}.

One day, {friend} stood behind the shelf and listened. “You read well,” {f.he} said. “May I sit here too?”
After some weeks, {few} children sat around {hero} and {pet#1}. “Louder!” called {third}. “We can't hear what the {wonder#1} said!”

And then at school it was {his} turn again. {hero} thought of {pet#1} and read the whole page without a stop. It was quiet in the room. “Well!” said the teacher.
At the summer feast, {hero} read a story in front of {bignum} people. In the first row sat {elder} and {pet#1}, who wagged its tail at the best place.

--
“You have found your glasses,” {hero} said to {elder} one day. {elder} winked. “They were never lost,” {e.he} said.
Every long book begins with one small word. [And a good listener helps.|You only have to turn the page.]

@ending
@glad

= the-star
@opening

@weather

--
One {season} night, a star fell from the sky. {poof}! It landed {at}.
{hero} could not sleep. {He} looked at the sky and counted the stars. “{C:bignum},” {he} said. And then one of them fell.

{hero} {went} there in {his} {clothes#1}. In the grass lay a star, no bigger than {a:food#1}. It shone only a little. “I am cold,” it said.
{He} ran to {place} and found it under {a:flower#1}. It was warm like {a:food#1} from the oven. “I want to go home,” whispered the star.

--
“How can I help you?” asked {hero}. “Bring me up again,” said the star. “But the sky is very high.”
“How did you fall?” asked {hero}. “I bent down to see {a:animal#1},” said the star, “and I slipped.”

{hero} climbed onto the {house#1}. It was not high enough. {He} climbed {a:tree#1}. It was not high enough either.
First {he} threw it as high as {he} could. The star came down again. Then {he} tied it to {a:toy#1}, but the string was too short.

{friend} came and wondered about the light. “{A:vehicle}?” {f.he} suggested. “{A:size} ladder? {A:toy}?” They tried it all.
So {he} woke {friend}. “Let us ask {elder}, who knows everything,” said {friend}. {elder} stroked {e.his} chin. “Go to the highest hill,” {e.he} said, “and wait for the wind.”

--
Then {hero} had an idea. {He} {went} to {place2} and asked {a:flyer#1}. “Will you carry a star?” “I have carried heavier things,” said the {flyer#1}.
On the highest hill stood {a:flyer#1}. “I fly by night,” it said, “and I know the way.” {hero} put the star between its wings.

“Thank you,” said the star. “Look up at me when you are {unhappy#1}. I will [blink {few} times|shine twice as brightly].”
“Don't forget me,” said {hero}. “Stars never forget,” said the star and gave {him} a grain of light, as small as {a:tiny}.

Up and up they went, until {hero} could see only a tiny point. Then the sky was whole again.
{hero} and {friend} lay in the grass and watched. There! Where there had been a dark place, something twinkled.

--
@glad
@night

And when the night is clear, you can see it, just above {place}. [It blinks.|Wave to it.]
@ending
"""
