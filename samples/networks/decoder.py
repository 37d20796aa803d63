"""The weights of decoder.te, text from its module, and a check with NumPy.

python decoder.py weights     writes decoder.safetensors: random weights, the same in every run
python decoder.py generate    generates text with ./decoder.so, token by token
python decoder.py check       compares the tokens and logits with NumPy, which computes everything
                              again for each token, without a cache
"""

import sys
from math import erf, sqrt

import numpy as np
from safetensors.numpy import load_file, save_file

ROWS, VOCAB, HEADS, SIZE = 64, 96, 4, 16
D = HEADS * SIZE
# Token 0 is the space, as in ASCII.
PROMPT = [ord(letter) - 32 for letter in "Once upon a time"]


def weights():
    rng = np.random.default_rng(2018)
    draw = lambda *shape: rng.standard_normal(shape, np.float32)
    tensors = {"embedding": draw(VOCAB, D), "position": draw(ROWS, D)}
    for layer in range(2):
        shapes = {"qkv": (3 * D, D), "out": (D, D), "up": (4 * D, D), "down": (D, 4 * D)}
        for name, (out, fan) in shapes.items():
            tensors[f"{name}{layer}_weight"] = draw(out, fan) * np.float32(2 / sqrt(fan))
            tensors[f"{name}{layer}_bias"] = draw(out) / 10
    tensors["gamma"] = 1 + draw(5, D) / 10
    tensors["beta"] = draw(5, D) / 10
    save_file(tensors, "decoder.safetensors")


class Decoder:
    """The module with the caches of one text."""

    def __init__(self):
        import tvm_ffi

        self.module = tvm_ffi.load_module("./decoder.so")
        self.keys = np.zeros((2, ROWS, HEADS, SIZE), np.float32)
        self.values = np.zeros_like(self.keys)
        self.length = 0

    def logits(self, tokens):
        """Appends tokens; returns the logits of the next one."""
        logits = np.empty(VOCAB, np.float32)
        tokens = np.array(tokens, np.int32)
        self.module.decoder(tokens, self.keys, self.values, logits, self.length)
        self.length += len(tokens)
        return logits


def generate():
    """Returns the tokens after the prompt, and the logits that each was chosen by."""
    decoder = Decoder()
    all_logits = [decoder.logits(PROMPT)]
    tokens = [int(all_logits[-1].argmax())]
    while len(PROMPT) + len(tokens) < ROWS:
        all_logits.append(decoder.logits(tokens[-1:]))
        tokens.append(int(all_logits[-1].argmax()))
    return tokens, all_logits


def normalized(x, gamma, beta):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * gamma + beta


def reference(tokens, t):
    """The logits after some tokens, in float64."""
    gelu = np.vectorize(lambda u: u * 0.5 * (1 + erf(u / sqrt(2))))
    n = len(tokens)
    x = t["embedding"][tokens] + t["position"][:n]
    hidden = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(2):
        dense = lambda x, name: x @ t[f"{name}{layer}_weight"].T + t[f"{name}{layer}_bias"]
        qkv = dense(normalized(x, t["gamma"][2 * layer], t["beta"][2 * layer]), "qkv")
        q, k, v = qkv.reshape(n, 3, HEADS, SIZE).transpose(1, 2, 0, 3)
        scores = q @ k.transpose(0, 2, 1) / sqrt(SIZE) + hidden
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        a = scores / scores.sum(axis=-1, keepdims=True) @ v
        x = x + dense(a.transpose(1, 0, 2).reshape(n, D), "out")
        u = dense(normalized(x, t["gamma"][2 * layer + 1], t["beta"][2 * layer + 1]), "up")
        x = x + dense(gelu(u), "down")
    return normalized(x[-1], t["gamma"][4], t["beta"][4]) @ t["embedding"].T


def check():
    t = {name: x.astype(np.float64) for name, x in load_file("decoder.safetensors").items()}
    tokens, all_logits = generate()
    for at, logits in enumerate(all_logits):
        expected = reference(PROMPT + tokens[:at], t)
        np.testing.assert_allclose(logits, expected, atol=1e-3)
        assert tokens[at] == expected.argmax()
    print(f"decoder: {len(tokens)} tokens are NumPy's")


def text():
    tokens, _ = generate()
    print("".join(chr(32 + token) for token in PROMPT + tokens))


{"weights": weights, "generate": text, "check": check}[sys.argv[1]]()
