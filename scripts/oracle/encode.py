"""Answers questions about tokenizers and chat templates, as the real libraries do.

A question is a frame on standard input, its answer one on standard output. A frame
is the length of a JSON object (32 bits, little-endian), the object, and as many
bytes of data as its "bytes" says. Data is a batch of strings in UTF-8 or of lists
of token ids: their number, the length of each, and then all of them without gaps,
each number with 32 bits, little-endian. The length of a string is in bytes, that
of a list in ids.

    {"op": "load", "path": P}                 the tokenizer that is asked from now on
    {"op": "encode", "special": B} strings    ids; with special, also those that the
                                              post-processor adds
    {"op": "decode", "skip_special": B} ids   strings
    {"op": "normalize"} strings               strings
    {"op": "render", "template": T, "variables": V}
                                              one string

An answer that has an "error" has no data.
"""

import array
import json
import struct
import sys


def unpack(data, width):
    """Returns the items of a batch, each a view of the data."""
    (n,) = struct.unpack_from("<I", data)
    lengths = struct.unpack_from(f"<{n}I", data, 4)
    items, at = [], 4 + 4 * n
    for length in lengths:
        items.append(data[at : at + width * length])
        at += width * length
    return items


def pack(items, lengths):
    return b"".join([struct.pack(f"<{len(lengths) + 1}I", len(lengths), *lengths), *items])


def unpack_strings(data):
    return [str(item, "utf-8") for item in unpack(data, 1)]


def pack_strings(strings):
    items = [s.encode("utf-8") for s in strings]
    return pack(items, [len(i) for i in items])


def unpack_ids(data):
    return [list(item.cast("I")) for item in unpack(data, 4)]


def pack_ids(lists):
    return pack([array.array("I", ids).tobytes() for ids in lists], [len(ids) for ids in lists])


class Server:
    """Answers questions; each method named after an op takes its header and data."""

    def __init__(self):
        self.tokenizer = None
        self.templates = {}

    def load(self, header, data):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(header["path"])
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        return b""

    def encode(self, header, data):
        encodings = self.tokenizer.encode_batch_fast(unpack_strings(data), add_special_tokens=header["special"])
        return pack_ids([e.ids for e in encodings])

    def decode(self, header, data):
        return pack_strings(self.tokenizer.decode_batch(unpack_ids(data), skip_special_tokens=header["skip_special"]))

    def normalize(self, header, data):
        normalizer = self.tokenizer.normalizer
        strings = unpack_strings(data)
        if normalizer is not None:
            strings = [normalizer.normalize_str(s) for s in strings]
        return pack_strings(strings)

    def render(self, header, data):
        source = header["template"]
        template = self.templates.get(source)
        if template is None:
            template = self.templates[source] = environment().from_string(source)
        return pack_strings([template.render(**header["variables"])])


def environment():
    """Returns a Jinja environment with the settings that chat templates are written for."""
    import datetime

    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """The tag that marks what a model has written; here only its body matters."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.If(jinja2.nodes.Const(True), body, [], [], lineno=line)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.now().strftime(form)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def main():
    server, stdin, stdout = Server(), sys.stdin.buffer, sys.stdout.buffer
    while size := stdin.read(4):
        header = json.loads(stdin.read(struct.unpack("<I", size)[0]))
        data = memoryview(stdin.read(header.get("bytes", 0)))
        answer, out = {}, b""
        try:
            out = getattr(server, header["op"])(header, data)
            answer["bytes"] = len(out)
        except Exception as e:
            answer["error"] = f"{type(e).__name__}: {e}"
        head = json.dumps(answer).encode()
        stdout.write(struct.pack("<I", len(head)) + head + out)
        stdout.flush()


if __name__ == "__main__":
    main()
