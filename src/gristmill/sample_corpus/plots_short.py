# ruff: noqa: E501  (a variant is a line, however long)
"""Short plots of about a hundred words: a puddle, a picnic, a question at bedtime. The notation is described in beats.py and plots_everyday.py."""

PLOTS = """
= puddle
@opening

One {season} day, there was {a:size} puddle {at}. {sound}! {hero} jumped in with both feet.
After the rain, {hero} {went} to {place}. There was a puddle, and in the puddle was the sky.

“Your {clothes#1} is all wet!” said {friend}. “Yours is not,” said {hero}. “That is the problem.”
“Don't jump,” said {friend}. “You will get dirty.” “[Only on the outside|Mud is only wet earth],” said {hero}.

Then {friend} laughed and jumped too. {sound}! {sound}! Again and again they jumped.
{friend} put down {f.his} {small#1}, took off {f.his} {clothes#2} and jumped as well.

--
When they came home, {parent} looked at them for a long time. “Who are these two mud monsters?” {p.he} asked. “I know only a clean {kind} named {hero}.”
At home, {parent} pointed at the bathtub. “In you go,” {p.he} said, “both of you, and the {clothes#1} too.”

@treat
@night

Some days are made for [puddles|getting wet|jumping].
@glad

= picnic
@opening

@weather

{hero} and {friend} packed a basket: {s:food#1}, {s:food#2}, {treat} and {a:size} {food#3}. They {went} to {place}.
“Let us have a picnic {at},” said {friend}. {hero} took {s:food#1}, and {friend} took {s:food#2} and {treat}.

But when they opened the basket, it was empty. Only {few} crumbs were left. “Who did that?” cried {hero}.
They spread out {a:color} blanket. {hero} looked away for a moment, and then the {s:food#1} were gone!

--
A long line of ants was walking through the grass, and every ant carried a crumb. {hero} counted {bignum} of them.
Behind {a:tree} sat {a:wild} and chewed. “[Excuse me|Oh], were those yours?” it seemed to say.

“They have children, too,” said {friend}. {hero} thought about it and nodded. “Then today is their picnic,” {he} said.
{hero} was {unhappy#1} at first. But it looked so funny that {he} had to laugh.

They went home and ate {treat} at the kitchen table. [It tasted just as good.|They left the door open, in case somebody was hungry.]
So they picked {s:food_garden} on the way home and ate those.

@ending
@glad

= bedtime-question hero=child
It was {clock} in the evening, and {hero} could not sleep. {weather}
{hero} was {age} years old and asked {num} questions a day. The best one came at bedtime.

“{parent},” said {hero}, “what do {s:animal#1} dream of?” {parent} thought. “Of {s:food#1}, I think,” {p.he} said.
“How far is it to the moon?” asked {hero}. “Very far,” said {parent}. “If you took the {vehicle#1}, you would be {bignum} years old when you got there.”

“And what do {s:animal#2} dream of?” “Of {hobby#1}.” “And {s:wonder#1}?” “They dream of being {a:job#1}.”
“And with {a:vehicle#2}?” “Still far.” “And on the back of {a:animal#2}?” “That would be faster,” said {parent}, “but you must hold on tight.”

--
“And you?” asked {hero}. “What do you dream of?” {parent} smiled. “Of [a child who sleeps|you|{a:job#2} who can {dream}],” {p.he} said.
“Who lives up there?” “{A:trait#1} {wonder#2} with {a:color} {clothes#1},” said {parent}. “{C:pet#1} is the name. Every evening, {pet#1} turns on the stars, one by one.”

{hero} wanted to ask one more thing. But {his} eyes were already closed.
“And who …” began {hero}. Then there was only {his} breath. {parent} put out the light and tiptoed to the door.

{parent} pulled up the blanket with the {s:animal#3} on it. “Good night,” {p.he} whispered.
Outside, an owl called, and the moon [shone|smiled|hung] over {place}.

= counting numbers=birthday
@opening

{hero} could count to {new_age}, and {he} counted everything {he} saw {at}.
“I can count,” said {hero}, “and today I will count everything in {there}.” So {he} {went} to {place}.

“One {animal#1}, two {s:wild}, three {s:flower#1},” {he} said. “Four {s:food#1}, five {s:small#1} …”
There was one {job#1}. There were two {s:vehicle#1}, three {s:tree#1}, four {s:wild} and five {s:clothes#1} on a line.

--
“How many stars are there?” asked {friend}. {hero} looked up. {He} counted to {old_age}, then to {new_age}, and then {he} did not know how to go on.
“And how many drops are in the [sea|river]?” asked {friend}. {hero} opened {his} mouth and closed it again.

{elder} had heard them. “After {new_age} there is always one more,” {e.he} said, “and after that, one more again.”
“Nobody knows,” said {elder} {adverb}, “but it is nice to begin. One …”

“Does it never stop?” asked {hero}. “Never,” said {elder}. {hero} was {glad#1}. “Then I will never run out of things to do,” {he} said.
“Then let us count together,” said {friend}. “You take the odd ones, and I take the even ones.” “One,” said {hero}. “Two,” said {friend}. “Three,” said {hero}.

And if they have not fallen asleep, they are still counting.
@night
@ending
"""
