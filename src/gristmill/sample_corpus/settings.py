"""Settings of stories: worlds with fitting places and animals, and the weather of each season."""

# A place is written with its preposition ("by the pond"); the template slots {at} and {place} produce both forms.
WORLDS = {
    "village": {
        "there": "the village",
        "homes": """\
            a small village, a house with a green door, a cottage near the mill, a quiet village by the hills, the house
            at the end of the lane""",
        "places": """\
            at the market, by the old mill, in the schoolyard, on the village green, by the stone bridge, at the bakery,
            behind the church, in the orchard, at the well, by the duck pond, in the narrow lane, at the train station,
            in the town square, near the clock tower, at the library, on the hill, in the churchyard, beside the
            blacksmith's forge, under the plane trees, at the crossroads""",
        "wild": """\
            cat, dog, robin, duck, sparrow, pigeon, goose, hedgehog, squirrel, crow, swallow, hen, blackbird, magpie,
            mole, toad, jackdaw""",
    },
    "forest": {
        "there": "the forest",
        "homes": """\
            a deep green forest, the old forest, a little house among the trees, a forest full of ferns, a clearing in
            the woods""",
        "places": """\
            in the clearing, by the stream, under the old oak, at the edge of the forest, by the waterfall, in the
            blackberry bushes, near the hollow log, on the mossy rock, in the pine grove, by the beaver dam, at the foot
            of the hill, in the fern valley, beside the mushroom ring, near the fox den, on the fallen tree, at the
            spring, in the birch wood, on the winding path, beneath the tall pines, in the bramble thicket""",
        "wild": """\
            squirrel, owl, deer, fox, rabbit, hedgehog, woodpecker, badger, frog, chipmunk, cuckoo, jay, marten, wren,
            salamander, wild boar, nightingale""",
    },
    "farm": {
        "there": "the valley",
        "homes": """\
            a red barn on a small farm, a busy farmyard, a farmhouse on a hill, the stable of a quiet farm, a valley
            full of farms""",
        "places": """\
            in the barn, by the haystack, in the meadow, at the henhouse, by the gate, in the wheat field, under the
            apple tree, in the vegetable garden, by the pigsty, in the stable, at the pump, on the dirt road, in the
            pumpkin patch, near the scarecrow, by the windmill, in the hayloft, beside the tractor shed, behind the
            silo, at the milking stool, in the clover field""",
        "wild": """\
            cow, hen, horse, pig, sheep, goat, lamb, rooster, duck, donkey, goose, calf, pony, cat, turkey, barn owl,
            mouse, foal, piglet, chick""",
    },
    "seaside": {
        "there": "the harbor town",
        "homes": """\
            a town by the sea, a white house above the bay, a fishing village, a cottage near the lighthouse, a house on
            the harbor""",
        "places": """\
            on the beach, at the harbor, by the lighthouse, on the pier, near the rock pools, in the dunes, at the fish
            market, on the cliff, in the little cove, by the boathouse, on the sea wall, under the pier, at the end of
            the jetty, in the sandy bay, near the anchor, beside the nets, at the ferry landing, by the tide pools""",
        "wild": "gull, crab, seal, pelican, dolphin, heron, turtle, puffin, sandpiper, otter, cormorant, lobster",
    },
    "city": {
        "there": "the city",
        "homes": """\
            a big city, a tall house in the city, an apartment on the fifth floor, a busy street of a big city, a narrow
            house above a café""",
        "places": """\
            in the park, at the library, by the fountain, at the bus stop, in the museum, on the playground, at the
            café, near the big clock, in the subway station, on the corner, in the botanical garden, at the swimming
            pool, by the canal, on the roof terrace, in the courtyard, at the zoo, near the newspaper stand, by the
            statue, in the elevator, at the theater""",
        "wild": """\
            pigeon, dog, cat, squirrel, sparrow, duck, crow, mouse, swan, poodle, parrot, starling, terrier, gull""",
    },
    "mountain": {
        "there": "the mountains",
        "homes": """\
            a valley between tall mountains, a hut high in the mountains, a mountain village, a wooden house near the
            glacier, a cabin on the slope""",
        "places": """\
            by the waterfall, on the rocky path, in the cave, at the top of the ridge, by the mountain lake, in the high
            meadow, near the old hut, on the rope bridge, under the cliff, at the sheepfold, beside the icy brook, in
            the narrow gorge, by the stone tower, on the steep slope, near the hot spring, at the lookout, in the
            valley, by the cairn""",
        "wild": """\
            goat, eagle, marmot, sheep, hawk, deer, fox, hare, raven, bear, lynx, ibex, owl, mountain pony, falcon""",
    },
    "river": {
        "there": "the river valley",
        "homes": """\
            a mill by the river, the reeds beside the river, a village on the riverbank, a houseboat on the river, a
            cottage near the lake""",
        "places": """\
            by the river, on the wooden dock, in the reeds, under the willow, at the ferry, near the waterwheel, on the
            little island, by the bend in the river, at the shallow ford, on the old raft, in the boathouse, beneath the
            bridge, beside the lily pads, on the sandbank, at the lock, near the stepping stones, by the lake""",
        "wild": """\
            duck, frog, heron, otter, beaver, swan, dragonfly, kingfisher, turtle, goose, newt, water rat, crane""",
    },
}

# The worlds in which talking animals live.
BEAST_WORLDS = ("forest", "river", "farm", "mountain")

SEASONS = {
    "spring": """The [sun|morning sun] was warm and the [birds|robins|blackbirds] were singing.
        [Soft|Gentle] rain had fallen in the night, and everything was [green|fresh|bright].
        The first [daffodils|crocuses|tulips|bluebells] were out, and the air smelled of [grass|wet earth|blossoms].
        A [gentle|mild|playful] breeze shook the blossoms from the [cherry|apple|plum] trees.
        [White|Fluffy|Little] clouds drifted [over the hills|across the sky|past the rooftops].
        The [ice|snow] had melted, and [the brooks|all the puddles|the ditches] were full of water.""",
    "summer": """The sun was [hot|bright|high], and the sky was [blue|clear|cloudless].
        It was so [warm|hot] that [even the bees were lazy|the road shimmered|the cats slept in the shade].
        The [grass|barley|wheat] was [tall|golden], and crickets were [chirping|singing|humming].
        A [cool|light|salty] breeze felt [nice|lovely|wonderful] on the skin.
        [Bees|Butterflies|Dragonflies] danced [over the flowers|above the grass|in the warm air].
        The evening was [long and golden|warm and still|full of fireflies].""",
    "autumn": """The leaves were [red and gold|orange and brown|falling everywhere].
        A [cold|sharp|strong] wind [blew|whistled|rattled] through the branches.
        [Gray|Heavy|Low] clouds hung in the sky, and it smelled of [rain|smoke|apples|mushrooms].
        The [chestnuts|acorns|walnuts] were [ripe|shiny|dropping], and the [swallows|storks|geese] had flown south.
        [Mist|Fog] lay over the fields like [a blanket|milk|a veil].
        It had [rained|drizzled|poured] all [night|week|morning], and the path was muddy.""",
    "winter": """[Snow|Fresh snow|Thick snow] covered [the roofs|the fields|the whole world].
        It was [very|bitterly|terribly] cold, and every breath made a little cloud.
        [Icicles|Frost flowers|Snow caps] [sparkled|glittered|gleamed] in the pale sun.
        The [pond|lake|puddles] had frozen [over|hard|solid] in the night.
        The days were short, and [the stars|the lamps|the fireplaces] glowed early.
        Snowflakes [danced|whirled|drifted|tumbled] down without a sound.""",
}

ELDER_TITLES = {
    # title: (gender, kind of name)
    "child": {
        "Grandma": ("she", "girl"),
        "Grandpa": ("he", "boy"),
        "Mrs.": ("she", "surname"),
        "Mr.": ("he", "surname"),
        "Aunt": ("she", "girl"),
        "Uncle": ("he", "boy"),
        "Miss": ("she", "surname"),
        "Doctor": ("she", "surname"),
        "Captain": ("he", "surname"),
        "Nana": ("she", "girl"),
    },
    "beast": {
        "Grandmother": ("she", "animal"),
        "Mr.": ("he", "animal"),
        "Mrs.": ("she", "animal"),
        "Uncle": ("he", "animal"),
        "Aunt": ("she", "animal"),
        "Captain": ("he", "animal"),
        "Grandfather": ("he", "animal"),
        "Professor": ("he", "animal"),
        "Madam": ("she", "animal"),
    },
}
ELDER_ANIMALS = """\
    Owl, Badger, Heron, Turtle, Hen, Bear, Otter, Toad, Goose, Mole, Raven, Stag, Swan, Hedgehog, Goat, Woodpecker,
    Beaver, Crane, Porcupine, Lynx"""

# Where people write letters from, and how they say hello there.
TOWNS = """\
    Lisbon=Olá, Kraków=Dzień dobry, Paris=Bonjour, Zürich=Grüezi, Oslo=Hei, Cairo=Salaam, Málaga=Hola, Kyoto=Konnichiwa,
    Dublin=Hiya, São Paulo=Oi, Prague=Ahoj, Nairobi=Jambo, Lima=Buenos días, Göteborg=Hejsan, Delhi=Namaste,
    Athens=Yassou, Bogotá=Buenas, Istanbul=Merhaba, Quebec=Allô, Accra=Akwaaba, Berlin=Guten Tag, Córdoba=Hola,
    Florence=Ciao, Geneva=Salut, Havana=Hola, Jakarta=Halo, København=Goddag, Ljubljana=Zdravo, Marseille=Coucou,
    Naples=Buongiorno, Odesa=Pryvit, Porto=Olá, Reykjavík=Góðan dag, Seville=Hola, Tallinn=Tere, Utrecht=Hoi,
    Valparaíso=Hola, Warsaw=Cześć, Yerevan=Barev, Zagreb=Bok, Łódź=Hejka, Århus=Davs, Tromsø=Heisann, Budapest=Szia,
    Hanoi=Chào, Honolulu=Aloha"""
