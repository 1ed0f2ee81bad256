# ruff: noqa: E501  (a variant is a line, however long)
"""Plots from everyday life: things lost and mended, money saved, skills practised, secrets told. The notation is described in beats.py.

A blank line ends a beat; `?` makes the next beat optional; `--` starts a paragraph; `@name` inserts the variants of a shared beat.
"""

PLOTS = """
= lost-thing
@opening

{hero} had {a:color#1} {toy#1}. {He} [took it everywhere|slept with it every night|would not lend it to anyone].
Of all {his} things, {he} loved {his} {color#1} {toy#1} most. It had been a gift from {elder}.
For {his} birthday, {hero} had got {a:color#1} {toy#1}, and {he} [showed it to everyone|polished it every day].

--
One {season} [morning|day], the {toy#1} was gone. {weather}
But one {weekday}, {he} could not find the {toy#1} anywhere.
One {season} day, {he} came home and the {toy#1} was not there. “Where is my {toy#1}?” [cried|asked] {hero}.

{He} looked under the {house#1}. [It was not there.|Nothing.] {He} looked behind the {house#2}. [It was not there either.|Nothing but dust.]
{He} looked in the {house#1}, on the {house#2} and under the {house#3}, but {he} found only {a:quality} {small} and {a:clothes}.
“Did you look under the {house#1}?” asked {parent}. “Yes,” said {hero}. “And behind the {house#2}?” “Yes, there too.”

?
@sadness

--
Then {friend} came by. @asked
{hero}'s friend {friend} knocked at the door. @asked

“When did you last have it?” asked {friend}. “Yesterday, {at},” said {hero}. “Then let us look there,” said {friend}.
“Let us walk back the way you came,” said {friend}. “First to {place}, and then to {place2}.”
“I saw you {at} yesterday,” said {friend}. “Maybe you left it there.”

So they {went} to {place}. [They looked high and low.|They searched for an hour.] But the {toy#1} was not there.
They [searched|looked] {at}. {friend} found {a:quality} {small}, and {hero} found {a:food}, but there was no {toy#1}.

?
@thought

--
Suddenly they heard a [soft|funny|small] sound. “{sound}! {sound}!” It came from {a:tree} {at2}.
Then {hero} noticed something {color#1} {at2}. {He} ran to it as fast as {he} could.
{A:wild} [sat|was standing] {at2}, and under its feet lay something {color#1}.

There it was! {A:wild} had [made a nest in|fallen asleep beside|hidden] the {toy#1}.
“{hurray}!” cried {hero}. “My {toy#1}!” It was [wet|dusty|a little dirty], but it was not broken.

@thanks

@treat
@fun
@glad

--
After that, {hero} always put the {toy#1} [back on the {house#1}|away in the {house#2}] before bed. A thing has a home, too.
{hero} learned that [two pairs of eyes see more than one|a good friend is worth more than any {toy#1}|it helps to ask for help].
“A place for everything,” said {parent}, “and everything in its place.” {hero} nodded {adverb}.

@ending
@night

= saving-coins numbers=coins hero=child
@opening

@habit

--
In the window of the {toyshop#1} there was {a:color#1} {toy#1}. It cost {price} coins. {hero} wanted it very much.
One {season} day, {hero} saw {a:color#1} {toy#1} in the {toyshop#1}. “How much is it?” {he} asked. “{C:price} coins,” said the {seller#1}.

{hero} counted {his} coins. {He} had only {have}. “Then I need {need} more,” {he} said.
At home, {he} opened {his} money box. There were {have} coins in it. {C:price} minus {have} is {need}, so {need} coins were missing.

?
@sadness
@thought

“You could [earn the rest|work a little],” said {parent}. “[Many people need a helping hand.|Ask the neighbors.]”
“Nobody gets everything at once,” said {parent} {adverb}. “But you can earn it, coin by coin.”

--
On {day1}, {hero} [swept the floor|washed the windows|carried boxes] for the {job#2} and got {earn1} coins.
On {day1}, {he} [walked the dog of|picked {s:food#1} for|painted a fence for] {elder}. “Here are {earn1} coins,” said {elder}. “You worked hard.”

On {day2}, {he} [sold lemonade|sold {s:food#2}|watered the {s:flower#1}] {at} and got {earn2} more.
On {day2}, {he} helped {friend} to carry {s:tool#1} to {place}, and {friend}'s [mother|father|aunt] gave {him} {earn2} coins.

Now {he} had {have} and {earn1} and {earn2}. That made {price}! [{hero} counted them twice.|It was exactly enough.]
{hero} put all the coins in a row: {have}, and {earn1}, and {earn2}. Together they were {price}. “{hurray}!” {he} shouted.

--
{hero} {went} to the {toyshop#1} with a full purse. The {seller#1} counted the coins and smiled. “{C:price}. Well done!”
At the {toyshop#1}, the {toy#1} was still there. {hero} put {price} coins on the table, and the {seller#1} wrapped the {toy#1} in {color} paper.

On the way home, {he} met {friend}, who had no {toy#1}. {hero} thought for a moment. “Let us play together,” {he} said.
“You can [play with it too|have a turn tomorrow|come to my house],” said {hero} to {friend}.
{friend} looked at {hero} with big eyes. “We will share,” said {hero} {adverb}.

@fun
@treat
@glad

--
What you have worked for [tastes sweeter|shines brighter|is worth twice as much].
{hero} had learned that [waiting is hard but worth it|a little every day becomes a lot|work and patience make wishes come true].

@night
@ending

= broken-vase
@opening

?
@habit

--
One {season} day, {hero} was playing {game} in the house, although {parent} had said, “Not inside, please.”
{parent} had {a:quality#1} {breakable#1}. It had belonged to {elder}. “Be careful with it,” {p.he} always said.

{hero} [jumped|ran|threw a ball] once too often. {crash}! The {breakable#1} fell [to the floor|off the shelf] and broke into {few} pieces.
{hero} bumped into the {house#1}, the {house#1} hit the {house#2}, and then — {crash}! The {breakable#1} was broken.

“Oh no,” whispered {hero}. {He} hid the pieces [under the {house#3}|in a box|behind the curtain].
{hero} looked left and right. Nobody had seen it. {He} pushed the pieces under the {house#3}.

--
At supper, {hero} could not eat {his} {treat}. “Are you ill?” asked {parent}. “No,” said {hero} {sadly} and looked at {his} plate.
All evening, {hero} felt {unhappy#1}. The {treat} tasted like [paper|sand|nothing]. “Is something wrong?” asked {parent}.
{hero} went to bed early, but {he} could not sleep. {He} counted {num} [sheep|stars|cracks in the ceiling], and still {he} was awake.

?
{He} wanted to say that the [cat|wind] had done it. But that was not true.
“I could say it was {friend},” {he} thought. But {friend} had not done anything.

--
In the morning, {hero} told {friend} what had happened. “You must tell the truth,” said {friend}. “It will be hard for one minute, and then it will be over.”
The next day, {he} met {elder}. “A lie is like a stone in your shoe,” said {elder}. “Every step hurts until you take it out.”

So {hero} [went to|stood in front of] {parent} and said, “I broke the {breakable#1}. I am sorry.”
{hero} brought the pieces to {parent}. {His} voice was very small. “It was me,” {he} said. “I was afraid to tell you.”

{parent} was quiet for a moment. Then {p.he} [hugged {him}|took {his} hand]. “I am sad about the {breakable#1},” {p.he} said, “but I am glad that you told me.”
“Thank you for telling me the truth,” said {parent}. “A {breakable#1} can be mended. Trust is harder to mend.”

--
Together they glued the pieces. It took [all afternoon|two hours|until supper]. You could still see the cracks, [but {hero} liked it even more|and they looked like little rivers].
They mended it with glue and {color} paint. Now there was {a:flower} painted over every crack, and it was more beautiful than before.

@glad

Telling the truth takes courage, but [it makes your heart light|afterwards you can sleep].
And that night, {hero} slept very well.
Since then, when something breaks, {hero} says so at once. [And nobody plays {game} in the house anymore.|It is easier that way.]

= learn-a-skill
@opening

@habit
@weather

--
{hero} wanted to learn to play the {instrument#1}. [But it was not easy.|There was to be a concert {at} in {few} weeks.]
One day, {hero} heard {elder} play the {instrument#1}. It sounded like {sounds_like}. “I want to play like that,” said {hero}.

“Will you teach me?” {hero} asked. “Yes,” said {elder}, “but you must practice every day.”
“It is not difficult,” said {elder}. “[You only need two hands and a lot of patience.|You only have to try a hundred times.]”

--
The first time, the {instrument#1} went “{sound}!” and [the cat ran away|the birds flew up|everyone covered their ears].
The first day, it sounded like {a:animal} with a cold. [{friend} laughed.|Even the {wild} ran away.]

The second time was no better. {hero} [threw down the {instrument#1}|wanted to give up|stamped {his} foot]. “I will never learn it!” {he} cried.
The second day, {his} fingers hurt. “I can't do it,” said {hero} {sadly}. “You can't do it yet,” said {elder}. “Yet is a small word, but it is a strong one.”

?
@wisdom

The third time, {he} played {few} notes, one after the other, and they were all right.
On the third day, something changed. {hero} played slowly, and suddenly there was a [melody|tune|song].

So {hero} practiced {at} in the [morning|afternoon] and {at2} in the evening. {He} practiced for {num} days.
Every day {hero} practiced: {num} minutes before breakfast and {num} minutes after supper.

--
Then the day of the concert came. {His} [knees shook|hands were cold|heart was beating fast]. “[What if I make a mistake?|What if I forget it all?]” {he} whispered.
At last it was {weekday}, and everyone came to {place}. There were {bignum} [people|guests|chairs], and {hero} felt {unhappy#1}.

“Then you play on,” said {friend}. “[Nobody will bite you.|I will sit in the first row and smile.]”
{friend} winked at {him}. “Just play it for me,” {f.he} said {adverb}.

{hero} closed {his} eyes and began. The notes [danced|flew|floated] through the air like {s:airy}. When it was over, everybody clapped.
{hero} played. {He} made one mistake, but {he} went on. At the end, everyone clapped and shouted, “{hurray}! Again!”

@glad

--
“How did you do it?” asked {friend}. “[A little every day|One note after the other|I tried once more than I failed],” said {hero}.
{elder} wiped {e.his} eyes. “You see?” {e.he} said. “Practice is the best teacher.”

@ending
@night

= birthday numbers=birthday hero=child
c: {hero} was {a:trait#1} {kind} who lived in {home}. Tomorrow {he} would be {new_age} years old.
c: In {home}, there lived {a:trait#1} {kind} [named|called] {hero}. {He} was {old_age}, but only for one more day.
c: Once upon a time, there was {a:trait#1} {kind} [named|called] {hero}, who was going to be {new_age}.

“When I am {new_age},” {he} told {friend}, “I will be big enough [to {dream}|for a real {vehicle}|to stay up late].”
{He} had told everyone about it: {parent}, {elder}, and even the {job}.

--
The next morning, {hero} jumped out of bed. [But the kitchen was empty.|But nobody sang.] {weather}
In the morning, {hero} ran down the stairs. {parent} was reading the newspaper. “Good morning,” {p.he} said, and nothing more.

{hero} met {friend} {at}. “Do you know what day it is?” {he} asked. “It is {weekday}, isn't it?” said {friend}.
On the street {he} saw {elder}. “What a nice {season} day,” said {elder}. “I am in a hurry. Goodbye!”

They had all forgotten! @sad
“Nobody remembers my birthday,” {he} thought. @sad

?
@sight

--
At {clock}, {he} came home. The house was dark. {He} opened the door, and then —
In the evening, {he} {went} home. All the curtains were closed. {hero} turned the key, and suddenly —

“Surprise!” Everyone was there: {parent}, {friend}, {third} and {elder}. [There were {color} balloons everywhere.|The whole room was full of balloons.]
“Happy birthday, {hero}!” shouted {parent}, {elder}, {friend} and {third}. {sound}! went the balloons.

On the table stood {a:size} cake with {new_age} candles. [{hero} blew them all out at once.|{hero} blew, and {old_age} went out, and then the last one.]
There was a cake with {new_age} candles: {old_age} {color} ones and {a:color} one in the middle.

--
{friend} gave {him} {a:color} {toy#1}, and {third} gave {him} {a:quality} {toy#2}. From {elder} there was {a:clothes} with {s:animal} on it.
There were {new_age} presents, one for every year: {a:toy#1}, {a:toy#2}, {a:clothes}, {s:food} and more.
The card from {friend} said: “[Happy birthday! {emoji}|For the best friend in the world {emoji}|Hooray, you are {new_age}! {emoji}{emoji}]”

“I thought you had forgotten,” said {hero}. “[Never|How could we?|Forget you?],” [said|laughed] {parent}. “It is hard to keep a secret from you.”
“So that is why you were all so strange today!” said {hero}, and everybody laughed.

@fun
@treat

@night
@glad

= new-friend
@opening

@habit

--
One {season} day, a new {f.kind} came to {place}. {f.His} name was {friend}, and {f.he} came from {town}.
{friend} was new in {there}. {f.He} had moved there from {town}, and {f.he} did not know anybody.

{friend} stood alone {at} and [looked at {f.his} feet|held {a:quality} {small} in {f.his} hand|did not say a word].
Nobody spoke to {friend}. [Some whispered.|The others were busy playing {game}.] {friend} looked very {unhappy#1}.

?
“{f.He} talks in a funny way,” said {third}. “That is because {f.he} knows two languages,” said {hero}. “How many do you know?”
“Why doesn't {f.he} play with us?” asked {third}. “Maybe nobody has asked {f.him},” said {hero}.

--
{hero} remembered [how it felt to be alone|{his} own first day]. {He} {went} over and said, “Hello! I am {hero}. Do you like {hobby#3}?”
{hero} took {his} last {food#1} and broke it in two. “Here,” {he} said {adverb}. “Half for you and half for me.”

“{hello},” said {friend} {sadly}. “That means hello where I come from.” {hero} tried to say it. “{hello}!” They both laughed.
{friend} [looked up|smiled for the first time]. “I like {hobby#3},” {f.he} said, “and I can {dream} — well, almost.”

“What do you play in {town}?” asked {hero}. [So {friend} showed {him}.|{friend} showed {him} a game with {s:small}.] It was [fun|harder than it looked|wonderful].
“Will you teach me more?” asked {hero}. “If you teach me {game},” said {friend}. “It's a deal!”

--
Soon {third} came too, and then {few} others. They all played {game} {at2}.
“May I play too?” asked {third}. “Of course,” said {friend}. “The more, the merrier!”

@treat
@fun

At the end of the day, {friend} said, “This morning I was {unhappy#1}. Now I am {glad#1}.” “[Me too|So am I],” said {hero}.
When they said goodbye, {friend} gave {hero} {a:quality} {small#3} from {town}. {hero} still has it.

--
A friend is [only a stranger you have not met yet|someone who shares {his} last {food#1}|found with one small word: hello].
It takes only one kind word to [begin a friendship|make somebody's day].
@ending

= the-quarrel
@opening

{hero} had a best friend, {friend}. [They did everything together.|They had never quarreled before.]
{hero} and {friend} were neighbors, and they liked {hobby#1} together.

--
One {season} day, they found {a:quality#1} {toy#1} {at}. “I saw it first!” said {hero}. “No, I did!” said {friend}.
One {weekday}, {elder} gave them {a:color#1} {toy#1}. “It is for both of you,” {e.he} said. But both wanted it at the same time.

“It is mine!” cried {hero} and pulled. “Mine!” cried {friend} and pulled too. {crash}! The {toy#1} broke in two.
{hero} pulled on one side, and {friend} pulled on the other. {crash}! Now each of them had half of {a:toy#1}.

“Look what you did!” they both shouted. {hero} {went} home, and {friend} {went} to {place2}.
“I never want to see you again!” said {hero}. “Good!” said {friend}. And they turned their backs.

--
At home, {hero} tried to play {game} alone. [But that is no fun.|But nobody laughed at {his} jokes.] @sad
The afternoon was long. Half {a:toy#1} is good for nothing, and [chess|hide-and-seek] is very dull when you are alone. @sad

?
@wisdom
@thought

{hero} took {his} half and {went} to {friend}'s house. In the middle of the way {he} met {friend}, who carried the other half.
Then there was a knock at the door. It was {friend} with {a:tool#1} and a pot of glue. “[I am sorry|I was silly],” {f.he} said.

“I am sorry,” said {hero}. “I am sorry too,” said {friend}. [Then they both had to laugh.|They said it at the same time.]
“I should have shared,” said {hero}. “I should not have pulled,” said {friend}.

--
They mended the {toy#1} together. It took {few} [nails|pieces of tape|knots] and a lot of glue.
They put the two halves on the table, and {elder} showed them how to mend it.

“You take it in the morning, and I take it in the afternoon,” said {hero}. “And on {weekday} we play together,” said {friend}.
From then on they took turns: one day {hero}, one day {friend}. {friend} wrote it on a calendar so that nobody would forget.

@fun
@treat

It is better to have [half a toy and a whole friend than a whole toy and no friend|a friend than to be right].
@ending
@glad

= baking-day numbers=recipe
@opening

?
@weather

--
One {weekday}, {hero} wanted to bake a cake for {elder}. “What do we need?” asked {friend}. {hero} read the recipe.
“Let us bake {s:food#1} for {elder},” said {hero}. {friend} got the big bowl, and {hero} opened the cookbook.

“{C:flour} cups of flour, {eggs} eggs, one cup of sugar and a pinch of salt,” {he} read {adverb}.
The recipe said: {flour} cups of flour, {eggs} eggs, butter, and a spoonful of honey.

They had {few_eggs} eggs. “Then we need {more_eggs} more,” said {friend}, and {f.he} ran to get them from the hens. {C:few_eggs} and {more_eggs} make {eggs}.
{hero} cracked the eggs: one, two, three! But one fell on the floor. {sound}! So {friend} brought another.

--
They stirred and stirred. There was flour on the {house#1}, on the {house#2} and on {friend}'s nose.
{hero} stirred, and {friend} sang a song about {a:animal} in {a:clothes}.

But {hero} was {hobby#3} in {his} thoughts and took the wrong jar. That was not sugar. That was salt!
“Taste it,” said {hero}. {friend} tasted it and made a terrible face. “{cry}! You took the salt!”

“Now everything is spoiled,” said {hero}. @sad
{hero} wanted to throw it all away. “I can't do anything right,” {he} said {sadly}.

--
But {friend} began to laugh. “[We have more flour|Everybody makes mistakes|My uncle once baked {a:clothes} into a pie],” {f.he} said. “Let us start again.”
{elder} looked through the door. “I once put pepper in the tea of the mayor,” {e.he} said. “Try again. Nobody's first cake is perfect.”

This time {hero} [read every line twice|tasted the sugar first|put labels on the jars]. They put the cake in the oven and waited for {bignum} minutes.
So they began again, slowly and carefully. At {clock}, the whole house smelled of {smell}.

{elder} took a bite. [Everyone was silent.|{hero} held {his} breath.] “Delicious!” {e.he} said. “It is the best I have ever eaten.”
When the cake was ready, they cut it into {pieces} pieces: {half} for {elder} and the neighbors, and {half} for themselves.

--
A mistake is only a [step on the way|recipe you should not use twice].
“And what have you learned?” asked {parent}. “[Sugar is sweet|Salt and sugar look alike|You can always try again],” said {hero}.

@glad
@ending

= the-show hero=child
@opening

?
@habit

--
The children {at} were going to put on a play about {a:wonder#1} and {a:animal#1}. {hero} got the part of the {wonder#1}.
There was to be a play on {weekday}. “You will be the {wonder#1},” said {elder} to {hero}, “and {friend} will be the {animal#1}.”

{hero} had {num} lines. {He} said them [to the mirror|to the cat|in the bath] every day.
{hero} learned {his} lines {at2}, in the {house#1} and even under the {house#2}.

{parent} sewed a costume: {a:color} {clothes#1} and {a:quality} {clothes#2} with {s:small}.
{friend} painted the scenery: {few} trees, {a:size} castle and a moon made of paper.

--
At last the big evening came. {C:bignum} people sat in the dark. {hero} looked through the curtain, and {his} [knees began to shake|mouth went dry].
Then it was time. The {job} dimmed the lights, somebody played {a:instrument}, and {hero} stepped onto the stage.

{He} opened {his} mouth, but no word came out. {He} had forgotten everything!
The first line was easy. The second was easy too. But then — nothing. {His} head was empty.

It was very quiet. Somebody coughed. {hero} felt {unhappy#1}.
One second passed, then two, then {few}. It felt like a hundred years.

--
Then {he} heard a whisper. It was {friend}, behind [the curtain|the paper moon|a tree]. “‘I am not afraid of {s:animal#1},’” whispered {friend}.
{friend}, the {animal#1}, came closer and [scratched {f.his} ear|waved {f.his} tail]. “Psst,” {f.he} whispered. “Say: ‘Who goes there?’”

And suddenly {hero} remembered it all. {He} said {his} lines [loudly and clearly|better than ever before], and at the end the {wonder#1} and the {animal#1} danced.
{hero} said the line, and all the others came after it like ducks after their mother.

The people clapped and clapped. {hero} took {friend}'s hand, and they bowed together.
“{hurray}! Bravo!” shouted the people. {parent} clapped loudest of all.

--
@thanks

“Were you afraid?” asked {parent}. “Yes,” said {hero}, “but I was not alone.”
Even the bravest {wonder#1} needs a friend behind the curtain.

@treat
@night

= pen-friend hero=child
@opening

@habit

--
One {season} day, the {job#1} brought a letter with {a:color} stamp. It came from {town}.
At school, {elder} gave every child a letter from far away. {hero}'s came from {town}.

“Dear {hero},” it said, “my name is {friend}. I am {age} years old, and I like {hobby#3}. What do you like? Yours, {friend} {emoji}”
The letter began: “{hello}! I am {friend} from {town}. We have {a:animal#1} and {num} {s:animal#2}. Do you have {a:animal#1}, too?”

{hero} read it {few} times. Then {he} took {a:quality} pencil and wrote an answer.
{hero} could not stop smiling. {He} ran to {place}, sat down and began to write.

“Dear {friend},” {he} wrote, “I live in {home}. I like {hobby#1}, and I once saw {a:wild}. It is {season} here. Yours, {hero}”
“Dear {friend},” {he} wrote, “we have no {animal#1}, but {parent} makes very good {treat}. In the letter is {a:color} {small#1} for you.”

--
The letters went back and forth, {num} in one year. They came by {vehicle#1} and by {vehicle#2}.
Every month there was a letter. In one there was {a:flower}, in another {a:small#2}, and once the sand of a beach.

But then no letter came. One week passed, then two, then {few}. @sad
But in {season}, the letters stopped. {hero} asked the {job} every morning. “Nothing today,” was the answer. @sad

?
@comfort_parent

--
On {weekday}, there was a knock at the door. A {f.kind} with a suitcase stood there. “{hello},” {f.he} said. “I did not write because I wanted to surprise you.”
One {weekday}, {parent} said, “Come with me to the station.” The train from {town} rolled in, and out climbed a {f.kind} with {a:color} {clothes}. “{hero}?” {f.he} asked.

It was {friend}! [They looked at each other and did not know what to say.|At first they were both shy.] Then they both began to talk at once.
“{friend}!” shouted {hero}. “You look just like your letters!” “You do too,” said {friend} and laughed.

@fun
@treat

--
When {friend} had to go home, they were not sad. “[We still have pencils|There are still stamps|The post is fast],” said {hero}, “and next year I will come to {town}.”
Some friends live next door, and some live far away. [But paper can fly.|A letter makes the world small.]

@ending
@night
"""
