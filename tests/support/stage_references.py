"""What the sampler stages should do to a row, written the plain way: sorted, in loops, in float64.

Each takes logits (a list or array, -inf for what is gone) and returns new ones. None shares code
with the stages; they follow the papers and llama.cpp's `llama-sampler.cpp`.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

INF = -math.inf


def probabilities(logits):
    logits = np.asarray(logits, dtype=np.float64)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def keeping(logits, ids):
    kept = np.full(len(logits), INF)
    ids = list(ids)
    kept[ids] = np.asarray(logits, dtype=np.float64)[ids]
    return kept


def live(logits):
    return [i for i, x in enumerate(logits) if x > INF]


def typical_p(logits, p):
    probs = probabilities(logits)
    ids = live(logits)
    entropy = -sum(probs[i] * math.log(probs[i]) for i in ids)
    ids.sort(key=lambda i: abs(-math.log(probs[i]) - entropy))
    mass, kept = 0.0, []
    for i in ids:
        kept.append(i)
        mass += probs[i]
        if mass >= p:
            break
    return keeping(logits, kept)


def top_n_sigma(logits, n):
    values = np.asarray([logits[i] for i in live(logits)], dtype=np.float64)
    mean = values.sum() / len(values)
    sigma = math.sqrt(((values - mean) ** 2).sum() / len(values))
    return keeping(logits, [i for i in live(logits) if logits[i] >= values.max() - n * sigma])


def min_k(logits, tau):
    ids = sorted(live(logits), key=lambda i: -logits[i])
    values = [float(logits[i]) for i in ids]
    span = values[0] - values[-1]
    if span == 0:
        return keeping(logits, ids)
    decay = [(values[i] - values[i + 1]) / span / (i + 1) for i in range(len(values) - 1)]
    cliff = decay.index(max(decay)) + 1
    return keeping(logits, ids[: max(cliff, math.floor(tau / span))])


def xtc(logits, probability, threshold, dice):
    if dice >= probability or threshold > 0.5:
        return np.asarray(logits, dtype=np.float64)
    probs = probabilities(logits)
    ids = sorted(live(logits), key=lambda i: -logits[i])
    last = 0
    for place, i in enumerate(ids):
        if probs[i] < threshold:
            break
        last = place
    return keeping(logits, ids[last:])


def dynatemp(logits, temperature, spread, exponent):
    """Logits are raw here; what comes back is divided by the dynamic temperature."""
    ids = live(logits)
    raw = np.asarray(logits, dtype=np.float64)
    if len(ids) == 1:
        return raw / temperature
    probs = probabilities(logits)
    entropy = -sum(probs[i] * math.log(probs[i]) for i in ids if probs[i] > 0)
    low, high = max(0.0, temperature - spread), temperature + spread
    dynamic = low + (high - low) * (max(0.0, entropy) / math.log(len(ids))) ** exponent
    return raw / dynamic


def mirostat(logits, version, mu):
    probs = probabilities(logits)
    ids = sorted(live(logits), key=lambda i: -logits[i])
    if version == 2:
        kept = [i for i in ids if -math.log2(probs[i]) <= mu]
        return keeping(logits, kept or ids[:1])
    top = ids[:100]
    if len(top) == 1:
        return keeping(logits, top)
    t = [math.log((i + 2) / (i + 1)) for i in range(len(top) - 1)]
    b = [math.log(probs[i] / probs[j]) for i, j in itertools.pairwise(top)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    e = s - 1
    with np.errstate(over="ignore"):  # of nearly equal tokens k is infinite
        k = np.float64((e * 2**mu) / (1 - len(logits) ** -e)) ** (1 / s)
    return keeping(logits, ids[: max(1, int(min(k, len(ids))))])


def surprise(edited, token_id):
    return -math.log2(probabilities(edited)[token_id])


def dry_lengths(history, allowed, last_n, breakers):
    """Return for each token the longest repetition that it would go on with, by trying them all.

    `breakers` are sequences of ids. Counted back from the end, a repetition stops before the last
    breaker that is whole.
    """
    window = list(history) if last_n < 0 else list(history)[max(0, len(history) - last_n) :]
    reach = len(window)
    for breaker in breakers:
        for end in range(len(breaker), len(window) + 1):
            if tuple(window[end - len(breaker) : end]) == tuple(breaker):
                reach = min(reach, len(window) - end)
    longest = {}
    for i in range(len(window) - 1):
        length = 0
        while length < min(reach, i + 1) and window[i - length] == window[-1 - length]:
            length += 1
        if length >= allowed:
            follower = window[i + 1]
            longest[follower] = max(longest.get(follower, 0), length)
    single = {breaker[0] for breaker in breakers if len(breaker) == 1}
    return {token: length for token, length in longest.items() if token not in single}


def dry(logits, history, params, breakers=()):
    """`params`: multiplier, base, allowed length and how many last tokens count."""
    multiplier, base, allowed, last_n = params
    edited = np.asarray(logits, dtype=np.float64).copy()
    for token, length in dry_lengths(history, allowed, last_n, breakers).items():
        edited[token] -= multiplier * base ** (length - allowed)
    return edited
