# ruff: noqa: E501  (a variant is a line, however long)
"""Sentences that many plots share: openings, small sights on the way, comfort, thanks, morals, endings.

One block per beat, one variant per line; `[a|b]` is a choice, `{slot}` is filled from the story's cast or the lexicon, and a line that starts with `c:` or `b:`
is only for stories about children or about talking animals ("beasts"). Quotes are curly here; most stories are written with straight ones.
"""

BEATS = """
= opening
Once upon a time, there was {a:trait#1}[ little| young|] {kind} [named|called] {hero}.
Once upon a time, in {home}, there lived {a:trait#1} {kind} [named|called] {hero}.
In {home}, there lived {a:trait#1}[ little| young|] {kind} [named|called] {hero}.
{hero} was {a:trait#1}[ little| young|] {kind} who lived in {home}.
There once was a [little|small|young] {kind} [named|called] {hero} who was {trait#1} and {trait#2}.
[Long ago|Not long ago|Once], {a:trait#1} {kind} [named|called] {hero} lived in {home}.
c: {hero} was {age} years old and lived in {home}. {He} was {a:trait#1} {kind}.
c: There was {a:trait#1} {kind} [named|called] {hero}, who was {age} years old.
b: Far away, in {home}, lived {a:trait#1} {kind}. {His} name was {hero}.
Everyone in {there} knew {hero}, {a:trait#1} {kind} with {a:color} {clothes}.

= habit
{hero} loved {hobby#1} and {hobby#2}.
{He} loved {hobby#1} more than anything else.
Every [day|morning|evening|{weekday}], {he} spent [an hour|a long time|a little while] {hobby#1}.
{He} always wore {a:color} {clothes#1} and liked {hobby#1}.
{His} favorite food was {treat}, and {his} favorite thing to do was {hobby#1}.
{He} had {few} [big|small|bright] [dreams|wishes|plans], and one of them had to do with {hobby#1}.
In {his} pocket {he} [kept|carried] {a:small#1}, {a:quality} {small#2} and {bit}.
When {he} was not [eating|sleeping|busy], {he} was {hobby#1}.

= weather
It was [a fine|a lovely|a quiet|a bright] {season} [morning|day|afternoon]. {weather}
It was {season}. {weather}
{weather}
One {season} [morning|day|afternoon], {hero} looked out of the window. {weather}
It was {season} again. {weather}

= sight
On the way, {hero} {watched} {a:size} {wild}.
{hero} passed {a:wild} and [waved|nodded|smiled|said good morning].
{C:wild} after {wild} [crossed|appeared on] the path, and {he} counted {num} of them.
The {flower#1} and the {flower#2} were [in bloom|nodding in the wind|wet with dew].
{hero} found {a:quality} {small} on the ground and put it in {his} pocket.
There was a cloud shaped like {a:animal}, and another like {a:wonder}.
The air smelled of {smell#1} and {smell#2}.
c: An old {job} [was sitting|was resting|stood] under {a:tree} and [whistled|hummed a tune|waved].
[Somewhere|Not far away|In the distance], somebody was playing {a:instrument}.
{C:how}, {a:wild} [looked at|followed|watched] {him} from behind {a:tree}.
{hero} [sang|hummed] a song about {a:animal} and {a:wonder} to keep {his} feet moving.

= market
There were {s:food#1}, {s:food#2} and {s:food#3} [in big baskets|on every table|piled high].
[Somebody|The {job}|A tall {job}] was selling {s:toy#1} and {s:clothes#1}, and [somebody else|the {job}] sold {treat}.
The {shop#1} smelled of {smell}, and [in the window|by the door] stood {a:quality} {homeware}.
{C:few} {s:vehicle} [rolled|rattled|rumbled] by, and the {job} rang {a:quality} bell.

= thought
{hero} [thought and thought|thought about it for a long time|scratched {his} head].
{hero} sat down under {a:tree} and thought.
“What can I do?” {hero} [thought|wondered|asked {himself}].
{hero} closed {his} eyes and counted to {num}. [Then {he} had an idea.|That helped a little.]
“Think, {hero}, think!” {he} told {himself}.
{hero} took a deep breath[ and looked at the sky| and tried to be brave|].

= sadness
{hero} felt {unhappy#1}. A tear rolled down {his} [cheek|nose].
{hero} was {unhappy#1} and [a little|very|also rather] {unhappy#2}.
{His} heart felt as heavy as {a:quality} {homeware}.
{hero} did not want to [eat|play|talk|smile], not even when {parent} offered {him} {treat}.
{hero} sat down, all alone, and felt very {unhappy#1}.
Oh, how {unhappy#1} {hero} was!

= comfort
“Don't be {unhappy#1},” said {friend} {adverb}. “[We will think of something.|I will help you.|We can do it together.|Two heads are better than one.]”
{friend} put an arm around {hero}. “[It will be all right|I am here|You are not alone],” {f.he} said.
“What is wrong?” asked {friend}. {hero} told {f.him} [everything|the whole story]. “[I can help|Let me help you|Then we must be quick],” said {friend} {adverb}.
“You look {unhappy#1},” said {friend}. “I am,” said {hero}. “But I feel better now that you are here.”
{friend} gave {hero} {bandaid} and {a:food}. [That helped.|It helped a little.|After that, things looked brighter.]

= wisdom
“[When I was young|Long ago|Once, when I was small],” said {elder}, “I was {unhappy#1} too. [But I did not give up.|A friend helped me.|So I asked for help.|It did not last.]”
“[Listen|Listen well|Come and sit down],” said {elder}. “[Small steps go far.|A kind word opens every door.|Nobody learns to fly in a day.|Slow and steady is fast enough.]”
{elder} [smiled|nodded|stroked {e.his} chin]. “[Try once more|Take your time|Start at the beginning],” {e.he} said {adverb}.
“I have seen [many|{few}] winters,” said {elder}, “and I know this: [patience is a strong rope|the truth is the shortest road|a shared load is a light load].”

= thanks
“Thank you, {friend}!” said {hero}. “[You are a true friend|You are the best friend in the world|I could not have done it without you].”
“Thank you[ so much| very much|],” said {hero} {adverb}. “You are welcome,” [said|answered|replied] {friend}.
{hero} [hugged|thanked] {friend} and gave {f.him} {a:color} {small}.
“How can I ever thank you?” asked {hero}. “[Just smile|Share your {s:food} with me|Be my friend],” said {friend} and laughed.

= treat
Then they [ate|shared] {s:food#1} and drank {drink}.
{parent} made {treat} and {s:food#1} for everyone.
{elder} baked {a:size} {food#1} pie, and there was {drink} too.
They sat {at} and ate {num} {s:food#1}[ and one very big {food#2}|].
There was {treat} and {drink}, and nobody went home hungry.

= fun
They played {game} until [the sun went down|it was dark|supper time|{parent} called them].
They [sang|danced|laughed] [all afternoon|all the way home|until their sides hurt].
{hero} played {a:instrument}, and {friend} danced like {a:animal}.
That evening, they [told each other|made up] a story about {a:quality} {wonder} and {a:animal} who [lived in|drove|owned] {a:vehicle}.
They drew a picture of {a:animal} in {a:color} {clothes} and hung it over the {house}.

= glad
{hero} was very {glad#1}.
{hero} felt {glad#1} and {glad#2}[, and a little sleepy|].
{hero} was so {glad#1} that {he} [jumped up and down|danced around the {house}|laughed out loud|did a somersault].
Never before had {hero} been so {glad#1}.
Everybody was {glad#1}, and {hero} most of all.

= night
That night, {hero} [fell asleep|went to bed] with a smile[ on {his} face|].
The [moon|moon and stars] [shone|looked] through the window, and {hero} dreamed of {a:animal} that could {dream}.
“Good night, {hero},” whispered {parent}. “[Sleep well|Sweet dreams|I am proud of you].”
At bedtime, {parent} [turned off|put out] the lamp. “What a day,” said {hero} and yawned.

= ending
The end.
And they all lived happily ever after.
From that day on, {hero} and {friend} were the best of friends.
And if you ever come to {there}, you may meet {hero} there.
{hero} never forgot that {season} day.
And every {season} after that, {hero} [told the story again|remembered that day and smiled].

= travel
So {he} [put on|took] {his} {color} {clothes} and {wandered} to {place}.
{He} packed {s:food#4} and {bit} and {went} to {place}.
{hero} {went} to {place}[ as fast as {he} could| without looking back|].
{C:how}, {hero} {wandered} along the path to {place}.

= sad
{hero} felt {unhappy#1}.
{hero} was very {unhappy#1}.
{hero} felt {unhappy#1} and a little {unhappy#2}.
{hero} sat down and sighed.
A tear ran down {his} nose.

= asked
“What is the matter?” {f.he} asked. {hero} told {f.him}.
“You look {unhappy#1},” {f.he} said. “I am,” said {hero}.
“Why are you so {unhappy#1}?” {f.he} asked {adverb}.

= comfort_parent
“Be patient,” said {parent}. “[A letter has a long way to go.|Good things take time.]”
{parent} made {him} {treat}. “[Wait and see|Tomorrow is another day],” {p.he} said {adverb}.
"""
