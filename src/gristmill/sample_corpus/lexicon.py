"""The words of the stories: one comma-separated list per category, the most frequent word first.

A template writes `{toy}` for a word of the list, `{a:toy}` for "a kite" or "an owl puppet", `{s:toy}` for "kites". The
order matters: the n-th word of a list, from 0, is drawn with weight 1 / (n + 5), so that the first words are common and
the last ones rare, as in real text.
"""

NAMES = {
    "girl": """\
        Lily, Mia, Anna, Zoë, Emma, Rosa, Ella, Sara, Nora, Lucy, Maya, Clara, Amélie, Ruby, Ivy, Alice, Hana,
        Leila, Chloë, Daisy, Grace, Inés, Molly, Sofia, Hazel, Tess, Freya, Aisha, Olivia, Renée, Priya, Mina,
        Elsie, Poppy, Ada, June, Violet, Léa, Yuki, Stella, Nina, Carmen, Bella, Iris, Willa, Maren, Zara, Siân,
        Pearl, Ingrid, Tilda, Fatima, Josie, Anaïs, Marta, Wren, Esme, Lena, Kiki, Dora, Greta, Amina, Thea,
        Mabel, Noor, Paula, Heidi, Svetlana, Sunniva, Beatrix, Cleo, Darya, Edith, Fleur, Gwen, Honor, Ilse,
        Juno, Katya, Lotte, Margot, Nadia, Odette, Petra, Quinn, Romy, Saskia, Tamsin, Una, Valentina, Winnie,
        Xenia, Yasmin, Zelda, Astrid, Bridget, Celia, Delphine, Eloïse, Flora, Gemma, Halina, Imani, Jasmine,
        Kezia, Luísa, Matilda, Nell, Ottilie, Phoebe, Rania, Sigrid, Tovë, Ursula, Vera, Wanda, Agnès, Björk,
        Chiara, Dalia, Estée, Fenna, Giulia, Hermia, Isolde, Jóhanna, Keiko, Linnea, Mairead, Nayeli, Orla,
        Paloma, Raquel, Shanti, Tallulah, Vesna, Yara, Zuzana""",
    "boy": """\
        Tom, Ben, Max, Sam, Leo, Jack, Theo, Noah, Finn, Oscar, Noël, Hugo, Omar, Milo, Jonas, Eli, Adam, Luca,
        José, Felix, Henry, Kofi, Emil, Oliver, Björn, Arlo, Ravi, Jamal, Peter, André, Toby, Otto, Simon, Ali,
        Mateo, Kenji, Lars, Ned, Caleb, Søren, George, Ivan, Rufus, Diego, Walter, Amir, Jude, Nico, Casper,
        Elliot, Raúl, Yusuf, Albie, Bruno, Cosmo, Dmitri, Edgar, Fergus, Gabriel, Harvey, Isaac, Jasper, Kai,
        Louis, Marek, Nils, Orson, Pablo, Quentin, Rowan, Stefan, Tariq, Ulf, Victor, Wilbur, Xavier, Yannick,
        Zeke, Anton, Basil, Cyrus, Darius, Edmund, Frédéric, Gustav, Hamish, Idris, Jürgen, Kwame, Lorenzo,
        Magnus, Nuño, Ömer, Percy, Rasmus, Sanjay, Tomás, Umberto, Vikram, Wendell, Yves, Zoltán, Alfie,
        Barnaby, Conrad, Desmond, Ezra, Fabian, Giles, Horace, Ignacio, Jiří, Kasimir, Linus, Mohammed,
        Nathaniel, Orhan, Pascal, Rémi, Sebastián, Teddy, Uri, Vincent, Wyatt, Youssef, Zachary, Ambrose, Bilal,
        Clement, Dashiell, Eamon, Florian, Gideon, Hector, Ichiro, Joaquín, Łukasz, Mirko, Osman, Raphaël""",
    "beast": """\
        Pip, Biscuit, Rusty, Clover, Button, Hazel, Pepper, Willow, Nutmeg, Bramble, Tuck, Maple, Ginger,
        Thimble, Fern, Acorn, Whiskers, Honey, Moss, Sorrel, Nibble, Juniper, Pebble, Twig, Poppyseed, Bracken,
        Cricket, Dash, Pumpkin, Thistle, Barley, Marigold, Nettle, Pickle, Snowdrop, Tansy, Truffle, Patch,
        Speckle, Tumble, Waffle, Ziggy, Burdock, Cinnamon, Dandelion, Fidget, Figgy, Huckle, Mallow, Oakley,
        Paprika, Quill, Rhubarb, Saffron, Scamper, Sesame, Skipper, Sprout, Teasel, Toffee, Tuppence, Velvet,
        Wobble, Yarrow, Crumpet, Bumble, Dumpling, Flicker, Gooseberry, Inky, Jolly, Mopsy, Noodle, Parsnip,
        Radish, Rumble, Smudge, Snuffle, Sunny, Toggle, Umber, Vole, Whistle, Ziti""",
    "surname": """\
        Brown, Green, Novák, Silva, Bell, Hill, Baker, Khan, García, Wood, Olsen, Marsh, Sato, Rossi, Müller,
        Finch, Okafor, Patel, Lindqvist, Moreau, Peabody, Dubois, Kowalski, Larsen, Núñez, O'Hara, Petrov,
        Quigley, Romano, Schäfer, Tanaka, Underhill, Vargas, Whitlock, Yilmaz, Zhang, Appleby, Bianchi,
        Carvalho, Dimitrov, Fitzgerald, Grünwald, Hawthorne, Ibrahim, Jørgensen, Kimura, Lefèvre, Mendoza,
        Nakamura, Ortega, Pemberton, Thistlewood""",
}

WORDS = {
    "trait": """\
        kind, brave, curious, shy, cheerful, clever, gentle, quiet, careful, playful, friendly, lively, silly,
        honest, patient, proud, stubborn, helpful, thoughtful, busy, dreamy, bold, hungry, tidy, messy, polite,
        restless, sleepy, generous, hopeful, impatient, grumpy, merry, nimble, noisy, loyal, sensible,
        talkative, wise, adventurous, bashful, bright, calm, chatty, daring, eager, earnest, fearless,
        forgetful, fussy, giggly, imaginative, inventive, jolly, lazy, mischievous, modest, nosy, optimistic,
        peaceful, plucky, practical, quick, reckless, scatterbrained, serious, sincere, solemn, spirited,
        sturdy, tender, timid, tireless, trusting, warmhearted, watchful, whimsical, witty, absentminded, bossy,
        clumsy, determined, fidgety, graceful, hardworking""",
    "glad": """\
        happy, glad, proud, excited, cheerful, pleased, delighted, thankful, relieved, joyful, merry, grateful,
        content, overjoyed, thrilled, jolly, satisfied, elated, radiant, ecstatic, blissful, jubilant""",
    "unhappy": """\
        sad, worried, upset, lonely, scared, nervous, angry, tired, sorry, afraid, confused, disappointed, ashamed,
        gloomy, jealous, cross, miserable, frightened, embarrassed, anxious, hurt, unsure, puzzled, homesick,
        heartbroken, uneasy, discouraged, frustrated, helpless, troubled, guilty, bewildered, downhearted, weary,
        sorrowful, alarmed, flustered, glum, startled, tearful, uncomfortable, wistful""",
    "adverb": """\
        softly, quietly, gently, kindly, warmly, cheerfully, calmly, happily, thoughtfully, politely, slowly,
        brightly, patiently, firmly, sweetly, fondly, earnestly, tenderly, wisely, seriously, playfully,
        lightly, quickly, merrily, solemnly, encouragingly, honestly, simply, lovingly, promptly, gladly,
        mildly, soothingly, good-naturedly, matter-of-factly""",
    "size": """\
        big, small, little, tiny, huge, large, round, tall, long, giant, enormous, wide, thin, fat, plump, gigantic,
        slender, great, short, miniature, massive, chubby, colossal, hefty, lanky, mighty, petite, stout, towering,
        vast, medium-sized, oversized""",
    "color": """\
        red, blue, green, yellow, brown, white, golden, black, orange, pink, gray, purple, silver, striped,
        spotted, pale blue, bright red, dark green, violet, turquoise, cream, scarlet, rosy, speckled, crimson,
        lavender, copper, amber, snowy, emerald, lemon-yellow, navy, rainbow, ruby, sky-blue, tan, tawny, beige,
        bronze, checkered, cherry-red, chestnut, coral, dappled, honey-colored, indigo, ivory, jade, lilac,
        magenta, maroon, mint-green, ochre, peach, polka-dot, rust-red, sapphire, teal""",
    "quality": """\
        old, new, shiny, pretty, soft, warm, wooden, strange, dusty, beautiful, smooth, fluffy, bright, broken,
        cold, sparkling, funny, rusty, special, lovely, lost, heavy, sticky, muddy, wet, plain, crooked, fancy,
        fresh, magic, secret, sweet, woolen, cozy, crumpled, delicious, dry, faded, fine, glittering, handmade,
        hollow, knitted, polished, quiet, ragged, rare, simple, slippery, soggy, tattered, tin, twisted, useful,
        velvet, wonderful, worn, ancient, square, oval, triangular, curved, battered, bent, bumpy, carved,
        chipped, clean, cracked, creaky, curly, dented, delicate, embroidered, enchanted, familiar, favorite,
        feathery, forgotten, fragile, frosty, furry, fuzzy, gleaming, homemade, icy, jagged, jingling, leather,
        loose, lumpy, marvelous, mended, misty, mossy, mysterious, neat, ordinary, painted, patched, peculiar,
        perfect, pointed, porcelain, precious, prickly, priceless, quilted, rickety, rough, scratched, shabby,
        sharp, silky, sleek, splendid, squeaky, stained, steaming, straw, sturdy, tangled, torn, unusual,
        wobbly, wrinkled""",
    "toy": """\
        ball, kite, doll, toy boat, teddy bear, drum, puzzle, wagon, toy train, whistle, top, yo-yo, marble,
        balloon, puppet, toy car, rocking horse, scooter, jump rope, music box, toy robot, paper airplane, hula
        hoop, bicycle, storybook, paintbox, sled, slingshot, jigsaw, toy rocket, dollhouse, pinwheel,
        skateboard, tambourine, toy castle, xylophone, telescope, magnifying glass, stuffed elephant, wind-up
        mouse, kaleidoscope, origami crane, tricycle, spinning wheel, toy tractor, snow globe, toy dinosaur,
        abacus, accordion, boomerang, chessboard, frisbee, harmonica, hobbyhorse, marionette, microscope,
        periscope, toy helicopter, trampoline, trumpet, ukulele, unicycle, walkie-talkie, toy submarine, toy
        crocodile, owl puppet, jack-in-the-box""",
    "small": """\
        button, stone, key, ribbon, coin, feather, shell, string, acorn, bell, pencil, leaf, marble, spoon,
        pebble, candle, needle, pinecone, ring, cork, nail, thimble, map, bead, chestnut, stick, twig, walnut,
        envelope, stamp, bottle cap, crayon, paper clip, rubber band, safety pin, seed, handkerchief, compass,
        postcard, thread, whistle, badge, bookmark, bracelet, brooch, buckle, dice, eraser, fishhook,
        flashlight, gear, gemstone, hairpin, hazelnut, hook, jar lid, keyring, ladle, locket, magnet, matchbox,
        medal, mitten, necklace, notebook, padlock, paintbrush, paper crown, pearl, peg, pocket watch, purse,
        sapphire, scarf, pair of scissors, screw, shoelace, spool, sponge, spring, tassel, tack, teaspoon,
        ticket, token, pair of tweezers, wishbone, zipper""",
    "tool": """\
        rope, ladder, hammer, shovel, bucket, basket, lantern, net, wheelbarrow, broom, saw, blanket, rake, axe,
        brush, pulley, paintbrush, hose, plank, wrench, pole, cart, sack, spade, screwdriver, crate, hook, pump,
        wedge, chain, anvil, barrel, bellows, chisel, crowbar, fishing rod, funnel, hoe, kettle, lever, mallet,
        needle, oar, paddle, pickaxe, pitchfork, pair of pliers, sickle, sieve, pair of tongs, toolbox, trowel,
        watering can, winch""",
    "house": """\
        table, bed, chair, cupboard, sofa, rug, stove, bookcase, bench, shelf, trunk, wardrobe, desk, armchair,
        bathtub, carpet, stool, piano, dresser, cabinet, cradle, curtain, staircase, workbench, laundry basket,
        fireplace, woodpile, mattress, radiator, refrigerator, washing machine, hammock, coat rack, doormat,
        umbrella stand, grandfather clock, sideboard, footstool, bunk bed, rocking chair""",
    "clothes": """\
        hat, coat, scarf, dress, shirt, sweater, jacket, cap, apron, cape, sock, boot, shoe, mitten, glove,
        skirt, raincoat, nightgown, vest, belt, bonnet, cloak, slipper, beret, bow tie, cardigan, costume,
        crown, hood, kimono, overcoat, poncho, robe, sandal, shawl, sneaker, sombrero, sunhat, tunic, turban,
        uniform, veil, waistcoat, wig, sari""",
    "food": """\
        cookie, cake, apple, pie, sandwich, muffin, pancake, egg, carrot, berry, pear, bun, plum, cupcake,
        peach, potato, strawberry, banana, nut, biscuit, cherry, orange, tart, turnip, tomato, pumpkin, waffle,
        dumpling, pretzel, blueberry, donut, cracker, raspberry, lemon, pickle, noodle, radish, walnut, pea,
        bean, onion, melon, mushroom, grape, fig, croissant, blackberry, cabbage, apricot, brownie, bagel,
        cranberry, cucumber, date, gingersnap, jelly bean, leek, lollipop, mango, meatball, olive, omelet,
        papaya, parsnip, pastry, peanut, pepper, pineapple, pizza, plantain, pomegranate, popsicle, ravioli,
        sausage, scone, shortcake, snickerdoodle, squash, sweet potato, taco, tangerine, toffee, truffle,
        turnover, watermelon, yam, zucchini, almond, artichoke, avocado, beet, brioche, burrito, caramel,
        cashew, chestnut, clementine, coconut, éclair, empanada, gooseberry, hazelnut, kiwi, lentil, lime,
        macaroon, nectarine, pistachio, quesadilla, quince, raisin, samosa, crêpe, soufflé, piñata candy,
        jalapeño""",
    "treat": """\
        bread, soup, porridge, cheese, jam, honey, pudding, rice, stew, ice cream, toast, popcorn, oatmeal,
        salad, chocolate, custard, pasta, gingerbread, broth, corn, fudge, granola, jelly, licorice, maple
        syrup, marmalade, nougat, spaghetti, sherbet, yogurt, cinnamon toast, crème brûlée, curry, marzipan,
        risotto, sauerkraut, spinach, sorbet, vanilla cream, goulash, lasagna, borscht, paella, rhubarb crumble,
        macaroni, couscous""",
    "beast": """\
        rabbit, fox, mouse, bear, squirrel, hedgehog, frog, duck, cat, puppy, kitten, badger, otter, beaver,
        turtle, mole, lamb, deer, raccoon, goose, hare, wolf, pig, goat, pony, hen, rooster, owl, donkey,
        porcupine, chipmunk, weasel, lynx, marten, opossum, skunk, ferret, shrew, dormouse, newt, toad, hamster""",
    "animal": """\
        dog, cat, bird, rabbit, fox, cow, horse, duck, squirrel, frog, mouse, sheep, goat, owl, deer, hen, bear,
        goose, snail, turtle, hedgehog, bee, butterfly, crow, donkey, lizard, robin, worm, pig, pony, beetle,
        ladybug, cricket, badger, swan, pigeon, lamb, rooster, sparrow, ant, elephant, monkey, lion, whale,
        penguin, dolphin, seal, otter, crab, spider, toad, parrot, peacock, camel, giraffe, zebra, tiger,
        kangaroo, panda, koala, octopus, starfish, dragonfly, caterpillar, grasshopper, woodpecker, magpie,
        seagull, heron, hawk, eagle, falcon, kingfisher, swallow, starling, nightingale, cuckoo, finch, wren,
        blackbird, pelican, flamingo, ostrich, emu, turkey, quail, pheasant, stork, albatross, puffin, raven,
        alligator, antelope, armadillo, baboon, bat, bison, boar, buffalo, chameleon, cheetah, cobra, coyote,
        crocodile, dinosaur, eel, firefly, gazelle, gecko, gorilla, hippo, hyena, iguana, jackal, jaguar,
        jellyfish, lemur, leopard, llama, lobster, mammoth, meerkat, mole, moth, mule, narwhal, orangutan,
        oyster, panther, platypus, python, reindeer, rhino, salamander, scorpion, seahorse, shark, sloth, snake,
        squid, stingray, tadpole, toucan, tortoise, vulture, walrus, warthog, wasp, wombat, yak""",
    "sea": """\
        whale, crab, fish, dolphin, seal, turtle, starfish, octopus, gull, jellyfish, lobster, shark, seahorse, eel,
        clam, pelican, shrimp, herring, mackerel, oyster, salmon, squid, stingray, tuna, urchin, walrus, anemone,
        barnacle, cormorant, cuttlefish, flounder, limpet, manatee, mussel, porpoise, sardine, swordfish, tern""",
    "tree": """\
        oak, apple tree, pine, willow, birch, maple, chestnut tree, cherry tree, elm, fir, beech, pear tree, spruce,
        poplar, cedar, ash, hazel, linden, plum tree, walnut tree, alder, aspen, cypress, elder tree, fig tree,
        hawthorn, holly, juniper, larch, magnolia, mulberry tree, olive tree, palm, rowan, sycamore, yew""",
    "flower": """\
        rose, daisy, tulip, sunflower, violet, lily, poppy, daffodil, buttercup, bluebell, dandelion, snowdrop,
        marigold, pansy, clover, primrose, lavender, foxglove, hyacinth, iris, crocus, geranium, honeysuckle,
        carnation, chrysanthemum, columbine, cornflower, dahlia, forget-me-not, gardenia, heather, hollyhock,
        hydrangea, jasmine, larkspur, lilac, lupine, nasturtium, orchid, peony, periwinkle, petunia, phlox,
        snapdragon, thistle, zinnia""",
    "job": """\
        baker, farmer, teacher, doctor, postman, carpenter, tailor, fisherman, shopkeeper, gardener, librarian,
        painter, cook, miller, shoemaker, blacksmith, nurse, sailor, clockmaker, firefighter, bus driver,
        beekeeper, captain, florist, weaver, potter, musician, shepherd, pilot, mechanic, butcher, toymaker,
        vet, dentist, singer, engineer, grocer, inventor, lighthouse keeper, mayor, photographer, plumber,
        policeman, scientist, actor, acrobat, architect, astronaut, astronomer, barber, bookseller, boatman,
        builder, candlemaker, cartographer, chimney sweep, clown, cobbler, conductor, dancer, electrician,
        explorer, ferryman, glassblower, goldsmith, jeweler, juggler, judge, knight, locksmith, magician, mason,
        miner, milkmaid, optician, pharmacist, poet, puppeteer, ranger, reporter, roofer, sculptor, seamstress,
        soldier, surgeon, tinker, umbrella maker, violinist, watchman, zookeeper""",
    "instrument": """\
        drum, flute, violin, guitar, piano, trumpet, harp, whistle, bell, tambourine, banjo, cello, accordion,
        clarinet, ukulele, xylophone, horn, fiddle, harmonica, recorder, saxophone, trombone, tuba, oboe,
        bassoon, bagpipe, cymbal, gong, lute, lyre, mandolin, maraca, organ, triangle, viola, zither""",
    "game": """\
        tag, hide-and-seek, catch, marbles, chess, hopscotch, pirates, soccer, leapfrog, checkers, dominoes,
        charades, basketball, tennis, dress-up, ping-pong, badminton, baseball, blindman's buff, bowling, cards,
        croquet, cricket, follow-the-leader, freeze dance, golf, hockey, kickball, knights and dragons, musical
        chairs, Simon says, tic-tac-toe, tug-of-war, volleyball""",
    "vehicle": """\
        bicycle, bus, train, cart, boat, wagon, truck, car, tractor, sled, ship, scooter, van, sailboat, canoe,
        carriage, ferry, tram, raft, rowboat, taxi, airplane, balloon, ambulance, bulldozer, caravan, fire engine,
        gondola, helicopter, kayak, limousine, locomotive, moped, motorcycle, rickshaw, sleigh, snowplow, steamboat,
        submarine, tandem, trolley, tugboat, yacht, zeppelin""",
    "shop": """\
        bakery, market, bookshop, café, toy shop, library, post office, flower shop, fruit stand, candy shop,
        grocery, hat shop, pet shop, shoe shop, tea shop, barbershop, butcher shop, cheese stall, clock shop,
        fabric store, fishmonger, hardware store, ice cream parlor, jewelry store, museum, music shop, pharmacy,
        photo studio, pottery shop, restaurant, spice stall, stationery shop, tailor shop, workshop""",
    "wonder": """\
        dragon, fairy, giant, unicorn, wizard, mermaid, princess, pirate, knight, king, queen, witch, elf,
        troll, dwarf, phoenix, ghost, goblin, prince, robot, ogre, genie, griffin, gnome, pixie, sphinx,
        werewolf, yeti, centaur, cyclops, sea serpent, sorcerer, spaceman, vampire, leprechaun, kraken""",
    "sound": """\
        Splash, Boom, Crash, Bang, Pop, Plop, Thump, Creak, Whoosh, Clang, Crack, Ding, Rustle, Snap, Squeak,
        Tap, Zoom, Bump, Buzz, Clatter, Click, Clonk, Crunch, Drip, Fizz, Gurgle, Hiss, Honk, Jingle, Patter,
        Ping, Rattle, Rumble, Scratch, Sizzle, Squelch, Swish, Thud, Tick, Twang, Whack, Whirr, Zap""",
    "cry": """\
        Oh no, Oh dear, Ouch, Uh-oh, Dear me, Oops, Goodness, Yuck, Good heavens, Fiddlesticks, Help, Crikey,
        Alas, Zut""",
    "went": """\
        walked, ran, went, hurried, skipped, marched, rushed, raced, hiked, set off, climbed, headed, dashed,
        strolled, bustled, cycled, jogged, sped, hastened""",
    "watched": """\
        watched, saw, noticed, heard, passed, met, spotted, followed, greeted, counted, admired, drew, sketched,
        observed, waved at, smiled at, stared at, whistled to, winked at, chased, bowed to, discovered, glimpsed,
        petted, photographed, recognized, studied, thanked, tickled, welcomed""",
    "hobby": """\
        painting, singing, reading, swimming, dancing, climbing trees, baking, drawing, building towers, telling
        stories, picking berries, collecting shells, flying kites, fishing, gardening, watching clouds, jumping
        in puddles, counting stars, making hats, knitting, riding bicycles, sewing, rowing, writing poems,
        cooking, playing chess, asking questions, whistling tunes, feeding ducks, sliding down hills, folding
        paper boats, catching fireflies, digging holes, doing cartwheels, exploring caves, fixing clocks,
        growing pumpkins, hunting for fossils, inventing machines, juggling oranges, keeping a diary, learning
        new words, mixing colors, naming clouds, pressing flowers, rolling marbles, sailing boats, skating,
        solving riddles, stacking stones, studying maps, tasting soups, tying knots, walking on stilts, watching
        trains, weaving baskets, whittling spoons, yodeling, sculpting clay, carving wood, practicing magic
        tricks, balancing on logs, blowing bubbles, decorating cakes, doodling, embroidering, imitating birds,
        memorizing songs, photographing insects, polishing stones, skipping rope, sledding, stargazing,
        wrestling""",
    "bit": """\
        a bit of string, a piece of chalk, a drop of paint, a pinch of salt, a scrap of paper, a lump of clay, a
        spoonful of sugar, a slice of bread, a handful of seeds, a bundle of sticks, a ball of yarn, a jar of
        honey, a cup of flour, a loaf of bread, a bowl of cherries, a bag of feathers, a barrel of apples, a
        bouquet of daisies, a bunch of grapes, a crust of bread, a dab of glue, a flask of tea, a heap of
        leaves, a pail of water, a pile of pebbles, a pot of ink, a roll of tape, a sheet of cardboard, a stack
        of plates, a tin of biscuits, a tube of glue, a wheel of cheese, a wisp of straw""",
    "smell": """\
        fresh bread, wet leaves, pine needles, cinnamon, cut grass, the sea, woodsmoke, roses, rain, warm hay,
        honey, lavender, oranges, old books, mint, soap, roasted chestnuts, toasted almonds, candle wax, damp
        earth, fried onions, ginger, lemons, moss, nutmeg, paint, pepper, sawdust, seaweed, thyme, tomato soup,
        vanilla, violets, wild garlic""",
    "bandaid": """\
        a bandage, a cool cloth, a kiss on the nose, a warm blanket, a soft pillow, a cup of mint tea, a spoonful of
        honey, a gentle hug, a clean towel, a drop of ointment""",
    "breakable": """\
        vase, teapot, lamp, bowl, jug, plate, mirror, clock, cup, sugar bowl, music box, glass bird, flowerpot,
        porcelain elephant, candlestick, snow globe""",
    "sounds_like": """\
        a brook in spring, rain on a tin roof, a hundred little bells, bees in the clover, wind in the chimney,
        a happy kettle, birds at dawn, waves on the sand, a train far away, laughter in the next room, spoons in
        a drawer, a purring cat""",
    "airy": """\
        butterfly, feather, snowflake, soap bubble, swallow, petal, kite, firefly, cloud, dragonfly, balloon,
        moth""",
    "fear": """\
        the dark, deep water, thunder, high places, the old bridge, big dogs, loud noises, strangers, the cellar,
        spiders, tall ladders, the wind, fireworks, shadows""",
    "songbird": """\
        sparrow, robin, finch, swallow, wren, blackbird, starling, thrush, nightingale, canary, lark, goldfinch,
        bluebird, titmouse, warbler, bullfinch""",
    "size_small": "tiny, small, little, very small, wee, teeny",
    "tiny": "ant, pea, crumb, pinhead, freckle, poppy seed, ladybug, raindrop, flea, lentil, snowflake, dewdrop",
    "food_garden": """\
        pumpkin, tomato, carrot, bean, cabbage, pea, turnip, cucumber, strawberry, radish, melon, squash, onion,
        potato, sunflower, beet, eggplant, cauliflower, rutabaga""",
    "gem": "ruby, pearl, diamond, emerald, jewel, gold coin, sapphire, crystal, amethyst, opal, topaz, garnet",
    "pet_animal": """\
        kitten, puppy, hedgehog, duckling, raccoon, mouse, cat, dog, squirrel, ferret, hamster, gosling""",
    "treat_pet": "milk, warm milk, bread and milk, oatmeal, cold sausage, leftover soup, porridge, cheese",
    "vehicle_snow": "sled, toboggan, sleigh, wooden tray, pair of skis, snow saucer",
    "flower_spring": "snowdrop, crocus, daffodil, primrose, tulip",
    "num_ordinal": "third, fourth, fifth, sixth, seventh, tenth, last",
    "dream": """\
        fly, sing, dance on a rope, ride a bicycle, talk to the moon, play the piano, swim across the lake, read
        minds, do magic, climb the tallest mountain, speak seven languages, drive a train, cook, ski, sail
        around the world, juggle, fly to the moon, live underwater, ride on clouds, whistle, paint the sky, walk
        on stilts, sleep in a tree, jump over houses""",
    "dream_past": """\
        lost a shoe, flew to the moon, was afraid of mice, could not sleep, ate too much jam, lived in a teapot,
        wanted to be a dentist, drove a train, never brushed its teeth, opened a bakery, sailed around the
        world, fell in love with a star, forgot every name, went to school, built a castle of sugar, rode a
        whale, sneezed all winter, painted the moon, lived at the bottom of the sea, learned to knit, missed the
        bus, had no shadow, was allergic to gold, collected umbrellas""",
    "tube": "telescope, spyglass, paper tube, bottle, pair of binoculars, rolled-up newspaper",
    "game_quiet": "chess, cards, tic-tac-toe, dominoes, I spy, checkers, riddles, word games",
    "boat_name": """\
        Sea Star, Brave Duck, Silver Fish, Lucky Sock, Flying Turtle, Queen Zoë, Little Whale, Old Potato, Happy
        Herring, Santa Lucía, Blue Button, Merry Walrus, Étoile""",
    "herd": "sheep, goat, cow, goose, lamb, pony, duck, donkey, calf, alpaca, llama",
    "beauty": "tail, coat, mane, crest, fluffy tail, winter coat, striped tail, bushy tail, silver coat",
    "prize": """\
        trophy, medal, golden cup, ribbon, crown, bell, wreath, basket of fruit, silver whistle, statue,
        lantern, banner""",
    "wisher": "fairy, elf, genie, pixie, sprite, gnome, goblin, imp, nymph, spirit",
    "flyer": "owl, swan, goose, stork, eagle, heron, crane, falcon, raven, pelican, albatross, moth, bat, condor",
    "robot_mishap": """\
        poured the soup on the floor, painted the dog, danced with a broom, walked into the wall, sang the whole
        night, ate the newspaper, watered the carpet, counted to a million, hung the socks in the tree, put the
        cat in the cupboard, buttered the window, ironed a pancake""",
    "robot_job": """\
        can carry books all day, never gets tired of stories, can reach the top shelf, knows how to count, can
        water the flowers, rings the bell on time, can lift a piano, sorts the letters, peels potatoes,
        remembers every birthday""",
    "long_word": """\
        “El-e-phant.”, “But-ter-fly.”, “Um-brel-la.”, “Choc-o-late.”, “To-mor-row.”, “Croc-o-dile.”, “Won-der-ful.”,
        “Car-a-mel.”, “Hip-po-pot-a-mus.”, “Ad-ven-ture.”""",
    "few": "three, two, four, five, six",
    "num": "seven, eight, ten, five, six, nine, twelve, eleven, four",
    "age": "six, seven, five, eight, nine, ten",
    "how": """\
        softly, quickly, slowly, quietly, happily, gently, carefully, kindly, proudly, sadly, bravely, loudly,
        eagerly, politely, cheerfully, calmly, shyly, warmly, nervously, patiently, thoughtfully, merrily,
        firmly, sleepily, gladly, seriously, hopefully, honestly, excitedly, sweetly, brightly, breathlessly,
        crossly, curiously, dreamily, earnestly, faintly, fondly, gratefully, grumpily, hastily, impatiently,
        lightly, lovingly, mysteriously, nicely, playfully, promptly, quaintly, sheepishly, silently, solemnly,
        steadily, suddenly, tenderly, timidly, urgently, wearily, wisely, anxiously, awkwardly, boldly, briskly,
        clumsily, cautiously, delicately, faithfully, fiercely, frantically, gracefully, hoarsely, innocently,
        joyfully, knowingly, lazily, modestly, obediently, reluctantly, stubbornly, tearfully, triumphantly,
        wistfully""",
    "sadly": """\
        sadly, shyly, quietly, nervously, softly, timidly, faintly, slowly, anxiously, sheepishly, wearily,
        tearfully, awkwardly, hoarsely, wistfully, reluctantly, glumly, miserably, uneasily, haltingly""",
    "hurray": """\
        Hooray, Wow, Look, Oh my, Hurrah, Goodness, Yippee, Yay, My goodness, Bravo, Goodness me, Gosh, Golly,
        Olé, Voilà, Heavens, Great, Well I never, Hip hip hooray, Aha, Jeepers, Mamma mia, Wonderful, Fantastic,
        Incredible""",
    "homeware": """\
        lamp, clock, pillow, teapot, kettle, pot, plate, jug, mirror, suitcase, bowl, quilt, candlestick,
        saucepan, basin, typewriter, cushion, vase, tablecloth, toaster, chandelier, doorbell, jar, drawer,
        window box, picture frame, mantelpiece, windowsill, chimney pot, attic door, cellar key, washtub,
        rolling pin, frying pan, flowerpot, butter churn, cookbook, ironing board""",
    "drink": """\
        milk, tea, hot chocolate, lemonade, apple juice, cocoa, cider, mint tea, raspberry juice, warm milk,
        water from the well, orange juice, buttermilk, elderflower syrup, chamomile tea, ginger ale, peach
        nectar, grape juice, barley water, peppermint tea, malted milk, root beer""",
    "bake": """\
        cookie, muffin, pancake, bun, cupcake, biscuit, tart, waffle, dumpling, pretzel, donut, cracker,
        brownie, gingersnap, pastry, scone, macaroon, croissant, éclair, samosa, empanada, bagel, crêpe,
        turnover, bread roll, snickerdoodle, shortbread heart""",
    "toyshop": """\
        toy shop, little shop, market, corner shop, secondhand shop, department store, gift shop, flea market,
        bazaar, toymaker's shop""",
    "seller": "shopkeeper, owner, clerk, seller, merchant, cashier, vendor, trader",
    "crash": "Crash, Bang, Crack, Snap, Clatter, Boom, Clang, Bump, Smash, Thud, Crunch, Rattle",
    "poof": "Whoosh, Poof, Pop, Ding, Zoom, Bang, Fizz, Swish, Zap, Ping, Puff, Twinkle, Kaboom",
    "wandered": """\
        walked, ran, went, hurried, skipped, marched, rushed, wandered, raced, strolled, tiptoed, hiked, set off,
        trotted, climbed, galloped, headed, scampered, dashed, trudged, crept, scurried, rambled, sprinted, ambled,
        bounded, bustled, cycled, drifted, hobbled, jogged, meandered, paraded, plodded, pranced, roamed, sauntered,
        scrambled, shuffled, stomped, strode, stumbled, swaggered, traipsed, waddled, zigzagged""",
    "weekday": "Saturday, Sunday, Monday, Friday, Wednesday, Tuesday, Thursday",
    "emoji": "🎈, 🌟, 🐸, 🍪, 🌈, 🎉, 🐢, 🌻, 🐾, ⭐, 🍎, 🦊, 🚂, 🎂, 😊, 🌙, 🐝, 🎵",
}

# Plurals that the rules of grammar.plural() would get wrong.
IRREGULAR_PLURALS = """\
    mouse=mice, wind-up mouse=wind-up mice, dormouse=dormice, goose=geese, sheep=sheep, deer=deer,
    reindeer=reindeer, fish=fish, wolf=wolves, leaf=leaves, shelf=shelves, scarf=scarves, knife=knives,
    loaf=loaves, dice=dice, bison=bison, moose=moose, squid=squid, shrimp=shrimp, herring=herring,
    mackerel=mackerel, salmon=salmon, tuna=tuna, potato=potatoes, sweet potato=sweet potatoes, tomato=tomatoes,
    mango=mangoes, octopus=octopuses, fisherman=fishermen, postman=postmen, boatman=boatmen,
    policeman=policemen, ferryman=ferrymen, watchman=watchmen, jack-in-the-box=jack-in-the-boxes,
    ravioli=ravioli, forget-me-not=forget-me-nots, elf=elves, dwarf=dwarves, buffalo=buffalo, spaceman=spacemen,
    platypus=platypuses, tooth=teeth, swordfish=swordfish, starfish=starfish, jellyfish=jellyfish,
    cuttlefish=cuttlefish, yo-yo=yo-yos, grouse=grouse, piñata candy=piñata candies, calf=calves, photo
    studio=photo studios, flounder=flounder"""

# Words that do not take the article that their first letter suggests.
TAKES_A = ("unicorn", "unicycle", "ukulele", "uniform", "useful", "one")
TAKES_AN = ("honest", "hour", "heir")
