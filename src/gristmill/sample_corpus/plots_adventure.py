# ruff: noqa: E501  (a variant is a line, however long)
"""Outdoor plots: getting lost, storms, hurt animals, treasure, gardens, the night. The notation is described in beats.py and plots_everyday.py."""

PLOTS = """
= lost-in-the-woods
@opening

@habit
@weather

--
“Do not go past {place},” {parent} always said. But one {season} day, {hero} followed {a:color} butterfly. {He} ran and ran.
One {season} day, {hero} went out to pick {s:food#1}. Here was one, there were two, and a little further on there were more. {He} did not look where {he} was going.

When {he} looked up, {he} did not know where {he} was. [All the trees looked the same.|Everything looked strange.]
Suddenly it was very quiet. {hero} turned around. The path was gone.

“Hello?” called {hero}. Only {his} echo answered: “Hello … lo … lo …”
“{parent}!” {he} called. “Where are you?” But nobody answered, only the wind.

@sadness
@thought

--
Then something moved [behind a bush|in the leaves|between the stones]. “Who is there?” asked {hero} {sadly}.
{crash}! went a branch. {hero} [jumped|held {his} breath].

Out came {friend}, {a:size#1} {helper}. “[Why are you crying?|You are a long way from home],” {f.he} said. “I am lost,” said {hero}.
“Don't be afraid,” said a [soft|deep|tiny] voice. It was {a:size#1} {helper} [named|called] {friend}. “I know every stone here.”

“Where do you live?” asked {friend}. “In {home},” said {hero}, “near {place}.” “[That is not far|I know the way],” said {friend}.
“What can you see from your window?” asked {friend}. {hero} thought. “{A:tree}, and {place},” {he} said. “Then I know where it is!”

--
First they {went} past {place2}. Then they crossed a [brook|ditch|little bridge]. {hero} counted the steps: {bignum}, and then {num} more.
So they set off. {friend} went in front, and {hero} held on tight. They passed {place2} and {place3}.

?
“Are you hungry?” asked {friend} and gave {hero} {s:food#2}. They tasted of {season} and sunshine.
On the way, {friend} taught {him} [how to find north by the moss|to read the stars|a walking song]. “If you know that,” {f.he} said, “you will never be lost again.”

It grew dark. But there, between the trees, a light was shining. “{hero}!” called a voice. It was {parent} with {a:quality} lantern.
At last {hero} saw {place}, and behind it smoke from a chimney. “{hurray}!” {he} cried. “That is my home!”

{parent} [hugged {him} for a long time|held {him} tight]. “I was so worried,” {p.he} said. “I am sorry,” said {hero}. “I will not go so far alone again.”
“Where have you been?” cried {parent}. {hero} told {p.him} everything. “[You must thank your friend|That was very kind of {friend}],” said {parent}.

--
{hero} turned to say thank you. But {friend} was already [gone|on the way back]. Only {a:small} lay in the grass, [as a gift|where {f.he} had stood].
@thanks

Since then, {hero} has put {a:food} {at} every {weekday}. In the morning it is always gone.
{hero} had learned to [look back from time to time|listen to {parent}|ask for help when {he} is lost].
@night

= afraid-of-the-dark
@opening

{hero} was not afraid of {s:animal#1}. {He} was not afraid of {s:animal#2}. But {he} was afraid of {fear#1}.
{He} was brave in the daytime. But there was one thing that frightened {him}: {fear#1}.

--
“Come with us to {place}!” said {friend} one {season} day. But {hero} shook {his} head, because of {fear#1}.
One {weekday}, {friend} and {third} wanted to go to {place}. “I can't,” said {hero}. “{C:fear#1} …”

“[Scaredy-cat|You are no fun]!” said {third}. That hurt. {hero} {went} home and hid [under the {house}|behind the {house}].
{friend} did not laugh. “I am afraid of {s:animal#3},” {f.he} said. “Everybody is afraid of something.”

?
@sadness

--
{hero} asked {elder}, “Were you ever afraid?” “Oh yes,” said {elder}. “But fear is like a [goose|dog|big dog]: if you run, it runs after you. If you stop and look, it sits down.”
“May I tell you a secret?” said {elder}. “Brave people are afraid too. They only take [one small step more|their fear by the hand].”

So the next day, {hero} took one step. {His} heart went [boom, boom, boom|thump, thump]. {He} ran back at once. “One step,” said {elder}. “That is one more than yesterday.”
On the first day, {hero} counted to {num}, and then {he} ran away. “Well done,” said {elder}. “Tomorrow you will count further.”

The second day was a little easier. On the third day, {friend} came too and held {his} hand.
On the second day, {he} stayed a little longer. On the third day, {friend} came along, and they sang a song about {a:animal}.

--
Then, one evening, {a:size_small} [kitten|lamb|duckling|bunny] was crying {at}. Somebody had to help it, and nobody else was there. {hero} forgot {his} fear and ran.
One day, {friend} called for help {at}. {hero} did not think about {fear#1}. {He} ran as fast as {he} could and pulled {friend} out of the [mud|thorns|ditch].

Only afterwards {he} noticed where {he} was. “{hurray}!” said {hero}. “I was not afraid at all!” “You were,” said {elder}, “but you went all the same. That is called courage.”
“You were so brave!” said {friend}. “Was I?” asked {hero}. {He} had to sit down. Then {he} began to smile.

@glad

--
{hero} is still a little afraid of {fear#1}. But {he} knows now [what to do|that fear grows smaller when you look at it].
Being brave does not mean that you are not afraid. It means that you [go on|try] anyway.

@ending
@night

= the-little-bird
@opening

?
@weather
@sight

--
One {season} morning, {hero} found {a:size_small} bird {at}. It could not fly. One of its wings was [hurt|bent].
“Peep, peep!” went something {at}. It was a young {songbird#1}, and it had fallen out of its nest.

{hero} [bent down|knelt in the grass]. “Don't be afraid,” {he} said {adverb}. The bird looked at {him} with its black eyes.
“Poor little thing,” said {hero}. {He} put it in {his} {clothes#1} to keep it warm.

{He} carried it [carefully|with both hands] to {elder}. “Can you help it?” {he} asked. “[We can try|Let me see],” said {elder}.
At home, {hero} made a bed from a box, {a:clothes#2} and some hay. Then {he} asked {elder} what to do.

--
“It needs [water|rest] and {num} worms a day,” said {elder}. “That is a lot of worms,” said {hero}. “Then you had better start digging,” said {elder}.
{elder} put {a:size_small} bandage on the wing. “Now it must eat and sleep,” {e.he} said. “And so must you.”

{hero} and {friend} dug for worms {at2}. On the first day they found {few}. On the second day they found {num}.
Every {few} hours, even at night, {hero} got up to feed the bird. {friend} came to help and brought {s:food} — for {hero}, not for the bird.

“I will call you {pet#1},” said {hero}. [{pet#1} chirped.|The bird liked its name.] Soon {pet#1} could hop, first to the {house#1} and then onto the {house#2}.
They called the bird {pet#1}. After a week {pet#1} was hopping [through the room|over the {house#1}] and ate from {hero}'s hand.

--
One day, {pet#1} spread both wings and flew once around the lamp. “It is time,” said {elder}. @sad
After {few} weeks, the wing was strong again. {pet#1} sat at the window and looked at the sky. {hero} knew what that meant.

“Can't {pet#1} stay with us?” asked {hero}. “Would you like to live in a box?” asked {elder}. {hero} shook {his} head.
“If you love somebody, you must let them fly,” said {friend}. {hero} nodded slowly.

They {went} to {place}. {hero} opened {his} hands. {pet#1} looked back once, sang a few notes and flew away, higher and higher.
{hero} opened the window. {sound}! And {pet#1} was gone, over {place} and away.

--
The next spring, there was a tapping at the window. Tap, tap, tap! It was {pet#1}, and behind {pet#1} sat {few} little ones.
{hero} was a little sad and very {glad#1}. And every morning, a {songbird#1} sings outside {his} window. {He} knows who it is.

Kindness [flies away, but it comes back|never gets lost].
@ending
@night

= the-storm
@opening

?
@habit

--
One {season} night, there was a terrible storm. The wind [howled|roared], and the rain beat against the window. {crash}! {crash}!
It rained for {few} days and {few} nights. The water rose and rose.

In the morning, the [bridge|little bridge] {at} was gone. The storm had carried it away.
When the storm was over, everybody came out to look. The bridge {at} was broken in the middle.

“How will we get to {place2} now?” asked {third}. “And my {s:food#1} are on the other side!” cried {friend}.
On the other side stood {elder} and could not come home. “I have only {few} {s:food#1} left,” {e.he} called.

--
{friend} tried to jump. {sound}! {f.He} fell into the water and came out wet and muddy.
“I will build a new one,” said {third}, “all by myself.” But the first log was too heavy for one.

{hero} threw a rope. It was too short. {He} tried again. It was still too short.
“I can swim,” said {hero}. But the water was too [fast|cold|deep].

@thought

“Alone we are too weak,” {he} said at last, “but together we are strong. Who has [a rope|an idea]?”
“We each have something,” said {hero}. “Let us put it together!”

--
{friend} brought {a:tool#1}. {third} brought {a:tool#2}. The {job_or_wild} brought {few} planks, and {hero} brought {a:tool#3}.
So {friend} ran for {a:tool#1}, {third} got {a:tool#2}, and {hero} drew a plan in the sand.

They [pulled and pushed|hammered and sawed] until the sun stood high. “One, two, three — heave!” they shouted.
It was hard work. {hero} [counted|tied the knots], {friend} sang, and {third} told jokes about {s:animal}.

By evening, the new bridge was ready. It was a little crooked, but it was strong. {elder} was the first to cross it.
At {clock}, the last plank was in its place. {elder} walked over it, step by step, and everyone cheered.

--
@treat

“Who built this bridge?” asked {elder}. “I did,” said nobody. “We did,” said everybody.
They painted the bridge {color} and gave it a name: the Bridge of {C:num} Hands.
Many small hands [can lift a big log|are stronger than one storm].

@ending
@glad

= the-garden numbers=garden
@opening

?
@habit

--
In spring, {elder} gave {hero} {seeds} {color} seeds. “What will they be?” asked {hero}. “Wait and see,” said {elder}.
One spring day, {hero} found a bag {at}. In it were {seeds} seeds, as small as {s:tiny}.

{hero} dug a hole for every seed. {He} gave them water and [sang to them|told them a story about {a:wonder}].
{He} planted them behind the house in {rows} rows, {per_row} in a row. {C:rows} times {per_row} makes {seeds}.

The next morning, {he} ran out to look. Nothing! The day after that, still nothing.
“When will they grow?” {hero} asked every day. “Not today,” said {elder} every day.

--
“Maybe they are asleep,” said {friend}. “Maybe they are {unhappy#1},” said {third}. {hero} did not know what to think.
{third} laughed at {him}. “You are watering dirt!” {hero} was {unhappy#1}, but {he} went on.

?
@wisdom

It rained, and the sun shone, and then, after {num} days, there was a tiny green leaf. “{hurray}!” shouted {hero}. “It's alive!”
One morning, there was a [green tip|little leaf] in the ground, and then another. {hero} counted them: {seeds}. Not one was missing.

{C:lost} of the little plants were eaten by {s:songbird#1}, but {sprouts} grew and grew.
A snail ate {lost} of the plants. {C:seeds} minus {lost} is {sprouts}, and the {sprouts} grew taller than {hero}.

--
In summer, there were {color} flowers as big as [plates|hats|the moon]. Bees came from {place} to see them.
In summer, {hero} pulled weeds and carried water. {friend} made a scarecrow with {a:color} {clothes} and {a:quality} {clothes}.

And in autumn, there were {s:food_garden}! They filled {few} baskets and {a:tool}.
When autumn came, {he} picked {bignum} {s:food_garden}. {He} could not eat them all.

So {hero} shared. {He} gave some to {friend}, some to {third}, and the biggest one to {elder}.
They cooked a pot of soup {at2}, so big that everyone could eat from it, even {third}. “I am sorry that I laughed,” said {third}.

--
{hero} kept {few} seeds for the next spring. [Good things need time.|That is how a garden goes on.]
“Now you know what they are,” said {elder}. “Yes,” said {hero}. “They are [patience|presents].”

@ending
@glad

= treasure-map
@opening

@weather

--
In {a:quality} {house#1}, {hero} found an old map. There was a red X on it, and the words: “[For the one who looks closely|Begin {at}|Three steps to happiness].”
{hero} was looking for {his} {clothes#1} when a piece of paper fell out of {a:quality} book. It was a treasure map!

“{hurray}! A treasure!” said {friend}. “Gold, maybe, or {s:gem}.” They took {a:tool#1}, {a:tool#2} and {s:food#1} and {went} off.
{He} showed it to {friend}. “Let us go at once,” said {friend}. “I will bring {a:tool#1}, and you bring the {s:food#1}.”

--
The first clue was {at}. “I have [hands but cannot clap|a face but no eyes],” it said. “A clock!” cried {hero}. And behind the old clock {at} lay the next clue.
The first riddle said: “I have teeth but I cannot bite.” {friend} scratched {f.his} head. “{A:animal}?” “No,” said {hero}, “a comb!” And under an old comb {at} lay the next clue.
The first riddle was written on a stone {at}: “I get wetter the more I dry.” “A towel!” cried {friend}. Behind it was an arrow.

The second clue led them to {place2}. “Walk {num} steps to the {tree#1}, then {num} steps to the [left|right],” read {hero}. They counted aloud.
Then they had to [climb over|crawl under|walk around] {a:quality} wall. {friend} got stuck, and {hero} pulled. {sound}! {f.He} was free.

?
@sight
@thought

The third clue was {at3}: “Dig here.” They dug until their arms hurt. {sound}! The {tool#1} hit something hard.
Under the {tree#1} {at3}, the ground was soft. They dug and dug, and then they saw the lid of a box.

--
{hero} opened it {adverb}. There was no gold in it. There were {s:toy#2}, {a:quality} {toy#3} and a letter.
In the box lay {few} {s:toy#2}, {a:small#1} and a letter in {color} ink.

“Dear finder,” said the letter, “I hid this when I was {age}. [The best treasure was looking for it|I hope you had a friend with you]. {elder}”
“If you read this,” said the letter, “you are clever and brave. Put something in the box for the next one. Your {elder}”

They {went} to {elder}. “You found it!” {e.he} cried. “It took you only one day. I needed {few} weeks to hide it.”
“So it was you!” said {hero} to {elder}, and {elder} laughed until {e.his} {clothes#2} shook.

--
They [drew a new map|buried the box again] and put in {a:small#2}, {a:small#3} and a riddle. One day, somebody will find it.
“No gold,” said {friend}, “but what a day!” And {hero} thought that {friend} was right.

@treat
@fun

@ending
@night

= night-noise
@opening

?
{He} slept in a small room under the roof, with {a:quality} {house#1} and a lamp shaped like {a:animal}.
@habit

--
One {season} night, {hero} woke up. {sound} … {sound} … What was that?
In the middle of the night, there was a noise. {sound}! {sound}! {hero} sat up in bed.

“Maybe it is {a:wonder#1},” {he} thought, “or {a:animal#1} with {few} heads!” {He} pulled the blanket over {his} ears.
{He} thought of {s:wonder#1}. {He} thought of {s:wonder#2}. {His} heart beat fast.

There it was again. {sound}! It came from the {house#2}.
{hero} listened. It was not the rain, and it was not the wind. It came from [the roof|outside|the kitchen].

--
{He} woke {third}, who slept next door. “Do you hear it?” {he} whispered. “Yes,” whispered {third}. “Let us go and look — you first.”
{hero} took {his} {color} lamp and {a:tool#1} and crept down the stairs, one step at a time: one, two, three … {num}.

“Who is there?” called {hero} as loudly as {he} could. The noise stopped. Then it began again.
The floor creaked. Something ran past. “{cry}!” cried {hero} and almost dropped the lamp.

{He} opened the door slowly. And what did {he} see? No {wonder#1}, no {animal#1}, but {a:size_small} {pet_animal#1} with its head in a jar!
{hero} lifted the lamp. Two green eyes looked at {him}. It was {a:size_small} {pet_animal#1}, wet and hungry.

--
“You poor thing,” said {hero}. “You gave me a fright, and I gave you one.” {He} gave it {treat_pet} and dried it with {a:clothes#1}.
{hero} had to laugh. “So you are the {trait#3} {wonder#1}!” {he} said and fetched some {treat_pet}.

In the morning, {parent} found them both asleep [on the rug|by the stove]. “Can it stay?” asked {hero}. “If you take care of it,” said {parent}.
“What is all this noise?” asked {parent} and turned on the light. Then {p.he} saw the {pet_animal#1}. “[Well, well|Goodness]! And who are you?”

They named it {pet#1}, [because it was so small|after a hero in a book|and it came when they called]. {friend} brought a ball for it the next day.
{friend} came and said, “It belongs to nobody. I think it was looking for you.” So they called it {pet#1}, and it stayed.

--
Most monsters are small [when you turn on the light|and hungry, and need a friend].
And when {hero} hears a noise at night now, {he} only says, “Go to sleep, {pet#1}.”

@ending
@glad

= snow-day season=winter hero=child
@opening

It was winter. {weather} “No school today!” said {parent}.
One winter morning, everything was quiet. {weather} {hero} pressed {his} nose against the window.

--
{hero} put on {his} {color} {clothes#1}, {his} boots and {a:quality} scarf. Outside, {friend} was already waiting with {a:vehicle_snow}.
{sound}! A snowball hit the window. Outside stood {friend} and laughed. “Come out!” {f.he} called.

First they rolled {a:size} ball, then a smaller one, and then the head. That made three.
They built a snowman. It took {few} hours and {bignum} handfuls of snow.

They gave it a carrot for a nose, {num} buttons for a coat and {a:color} {clothes#2}. “He needs a name,” said {friend}. “[Let us call him Mr. {surname}|He looks like Captain {surname}],” said {hero}.
For eyes they took {s:small#1}, and for hair they took straw. {elder} gave them {a:quality} {clothes#2}. “He looks like my brother,” {e.he} said.

--
“Aren't you cold?” {hero} asked the snowman. The snowman said nothing, but he seemed to smile.
They told him a story about {a:wonder} who {dream_past}.

?
They slid down the hill again and again. The {num_ordinal} time, {friend} fell off and looked like a snowman {f.himself}.
Then there was a snowball fight. {hero} threw {num} snowballs, and {few} of them hit {elder}, who threw back.

But after a week, the sun came out. Drip, drip, drip! The snowman became thinner and smaller.
Then it grew warmer. “He is melting!” cried {hero}. “Do something!” But what can you do against the sun?

@sadness

--
“He is not gone,” said {elder}. “He is in the brook now, and in the river, and in the sea. And next winter he will come back down.”
“Look,” said {friend}. Where the snowman had been, a {flower_spring} was growing, and on it hung a drop of water.

{hero} kept the {clothes#2} in a box and wrote on it: “For next year.”
{hero} waved at a cloud. “See you next winter!” {he} called.

Some friends go away, but they come back [with the snow|when it is time].
@ending
@treat

= the-boat hero=child worlds=seaside season=summer
@opening

@habit
@weather

--
{hero} and {friend} built a boat out of {bit}, {few} planks and {a:quality} {house#1}. They called it the “{boat_name}.”
“I want to see what is behind {place},” said {hero}. So {friend} and {he} borrowed {elder}'s {color} boat, the “{boat_name}.”

They took {s:food#1}, {a:tool#1} and a flag with {a:animal} on it. “[All aboard|Anchors away]!” called {hero}.
“Be back before dark,” said {parent}. “Aye, aye!” said {friend} and saluted.

--
At first, everything went well. They saw {a:sea#1}, then {few} {s:sea#2}. The sun was warm, and the water sang.
{hero} steered, and {friend} looked through {a:tube}. “{A:sea#1} ahead!” {f.he} shouted.

Then the wind dropped. The boat stood still. They waited one hour, then another.
But then there was a bump. {sound}! The boat was stuck on [a sandbank|a rock] and did not move.

“I will push,” said {hero}. {He} pushed until {he} was red in the face. The boat did not move.
They rowed. They blew into the sail. They even asked {a:wild} to pull. Nothing helped.

@sadness

--
“Let us eat something and wait,” said {friend}. “[Hurry is a bad sailor|The water will come back],” {f.he} added {adverb}.
{hero} wanted to shout. But {friend} opened the basket. “Nobody has good ideas when {few} {s:food#1} are waiting,” {f.he} said.

So they ate, and they told stories about {a:wonder} who {dream_past}. Time passed.
They counted clouds. They counted {s:sea#2}. They played {game_quiet}.

And then — {sound} — the boat moved! The tide had come in and lifted it, as gently as a hand.
Then {hero} felt something on {his} cheek. “The wind!” {he} cried. The sail filled, and off they flew.

--
At sunset, they were home. {parent} stood {at} with a lantern. “You are late,” {p.he} said. “We had to learn something,” said {hero}. “What?” “To wait.”
It was almost dark when they came to {place}. “What did you see behind it?” asked {elder}. “{C:few} {s:sea#2}, {a:sea#1} and a lot of time,” said {hero}.

@treat
@night

@ending
"""
