"""A command on a file that is cut short, or whose bytes are changed, always the same ways."""
import collections
import random
import resource
import subprocess


def attack(file, command, seed, turns, spots, mend=None):
    """It ends with 0 or 1, in words of its own, and for a file of less than a megabyte takes no gigabyte.

    `spots(data)`: ranges of places, one of which is taken each time; `mend(data)` comes behind every other change."""
    with open(file, "rb") as opened:
        whole = opened.read()
    dice, ended = random.Random(seed), collections.Counter()
    for turn in range(turns):
        data = bytearray(whole)
        if turn % 6 == 0:
            data = data[:dice.randrange(len(data))]
        for _ in range(dice.randint(1, 4) if data else 0):
            low, high = dice.choice(spots(data))
            data[max(0, min(dice.randrange(low, high), len(data) - 1))] = dice.choice((0, 1, 0x7f, 0x80, 0xff, dice.randrange(256)))
        if mend and turn % 2:
            mend(data)
        with open(file, "wb") as out:
            out.write(data)
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace")
        ended[ran.returncode] += 1
        assert ran.returncode in (0, 1), (turn, ran.returncode, ran.stderr[-400:])
        assert ran.returncode == 0 or ran.stderr.startswith("convert: ") and "out of memory" not in ran.stderr, ran.stderr[:400]
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(dict(ended), most, "KiB")
    assert most < 1 << 20 and ended[1] > 60
