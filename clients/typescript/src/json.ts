// Views over JSON text, and edits of one member that leave every other character as it
// was. Parsing a whole body and writing it again would change the spelling of numbers,
// round integers above 2^53, and undo escapes.

/** maxDepth is the deepest nesting that is accepted; engines give up not far beyond. */
const maxDepth = 512;

/** Member is where one member of an object stands in its text. The key is decoded. */
export interface Member {
  readonly key: string;
  readonly keyStart: number;
  readonly valueStart: number;
  readonly valueEnd: number;
}

/** Edit sets the member called key to the JSON text value. */
export type Edit = readonly [key: string, value: string];

/** ObjectView is a view over the members of one JSON object. */
export class ObjectView {
  constructor(
    readonly text: string,
    readonly members: readonly Member[],
    private readonly close: number,
  ) {}

  /** get returns the text of a value; of members with the same key that of the last. */
  get(key: string): string | undefined {
    for (let i = this.members.length - 1; i >= 0; i--) {
      const m = this.members[i]!;
      if (m.key === key) return this.text.slice(m.valueStart, m.valueEnd);
    }
    return undefined;
  }

  /**
   * edit returns the text with members set: where they stand if they are there, of
   * several the last, and the others go; at the end, in the order of the edits, if they
   * are not.
   */
  edit(edits: readonly Edit[]): string {
    const last = new Map<string, Member>();
    for (const m of this.members) last.set(m.key, m);
    const values = new Map(edits);
    const { text, members } = this;
    let out = "";
    let pos = 0;
    let kept = 0;
    members.forEach((m, i) => {
      const value = values.get(m.key);
      if (value === undefined) {
        kept++;
      } else if (last.get(m.key) === m) {
        kept++;
        out += text.slice(pos, m.valueStart) + value;
        pos = m.valueEnd;
      } else if (kept > 0) {
        // The comma before it goes, too.
        out += text.slice(pos, members[i - 1]!.valueEnd);
        pos = m.valueEnd;
      } else {
        // So does the one after it: the last of its name is still to come.
        out += text.slice(pos, m.keyStart);
        pos = members[i + 1]!.keyStart;
      }
    });
    const end = kept > 0 ? members[members.length - 1]!.valueEnd : this.close;
    out += text.slice(pos, end);
    for (const [key, value] of edits) {
      if (last.has(key)) continue;
      out += (kept++ > 0 ? "," : "") + JSON.stringify(key) + ":" + value;
    }
    return out + text.slice(end);
  }
}

/**
 * parseObject finds the members of the object that text is, with white space around it
 * but nothing else; undefined if it is none. Everything is checked but the insides of
 * strings.
 */
export function parseObject(text: string): ObjectView | undefined {
  return attempt(text, (s) => {
    const members: Member[] = [];
    const close = s.object(1, (m) => members.push(m));
    return new ObjectView(text, members, close);
  });
}

/** parseArray returns the texts of the elements of the array that text is. */
export function parseArray(text: string): string[] | undefined {
  return attempt(text, (s) => {
    const elements: string[] = [];
    s.array(1, (start, end) => elements.push(text.slice(start, end)));
    return elements;
  });
}

/** parseString returns what a JSON string stands for; undefined if text is none. */
export function parseString(text: string): string | undefined {
  if (!text.startsWith('"')) return undefined;
  try {
    return JSON.parse(text) as string;
  } catch {
    return undefined;
  }
}

class Malformed extends Error {}

function attempt<T>(text: string, read: (s: Scanner) => T): T | undefined {
  const s = new Scanner(text);
  try {
    s.space();
    const value = read(s);
    s.space();
    return s.pos === text.length ? value : undefined;
  } catch (e) {
    if (e instanceof Malformed) return undefined;
    throw e;
  }
}

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** Scanner goes through JSON text. Its methods leave pos after what they read. */
class Scanner {
  pos = 0;
  private readonly number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;

  constructor(private readonly text: string) {}

  space(): void {
    for (;;) {
      const c = this.text.charCodeAt(this.pos);
      if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return;
      this.pos++;
    }
  }

  /** object reads an object and returns where its brace closes. */
  object(depth: number, member?: (m: Member) => void): number {
    this.take(openBrace);
    this.space();
    if (this.at(closeBrace)) return this.pos++;
    for (;;) {
      this.space();
      const keyStart = this.pos;
      this.string();
      const keyEnd = this.pos;
      this.space();
      this.take(colon);
      this.space();
      const valueStart = this.pos;
      this.value(depth);
      if (member) member({ key: this.key(keyStart, keyEnd), keyStart, valueStart, valueEnd: this.pos });
      this.space();
      if (this.at(closeBrace)) return this.pos++;
      this.take(comma);
    }
  }

  array(depth: number, element?: (start: number, end: number) => void): void {
    this.take(openBracket);
    this.space();
    if (this.at(closeBracket)) {
      this.pos++;
      return;
    }
    for (;;) {
      this.space();
      const start = this.pos;
      this.value(depth);
      element?.(start, this.pos);
      this.space();
      if (this.at(closeBracket)) {
        this.pos++;
        return;
      }
      this.take(comma);
    }
  }

  private value(depth: number): void {
    const { text, pos } = this;
    switch (text.charCodeAt(pos)) {
      case quote:
        return this.string();
      case openBrace:
      case openBracket:
        if (depth >= maxDepth) throw new Malformed();
        if (this.at(openBracket)) this.array(depth + 1);
        else this.object(depth + 1);
        return;
    }
    for (const word of ["true", "false", "null"]) {
      if (text.startsWith(word, pos)) {
        this.pos += word.length;
        return;
      }
    }
    this.number.lastIndex = pos;
    if (!this.number.test(text)) throw new Malformed();
    this.pos = this.number.lastIndex;
  }

  private string(): void {
    const { text } = this;
    const start = this.pos;
    this.take(quote);
    for (let from = start + 1; ; ) {
      const end = text.indexOf('"', from);
      if (end < 0) throw new Malformed();
      let slash = end;
      while (text.charCodeAt(slash - 1) === backslash) slash--;
      if ((end - slash) % 2 === 0) {
        this.pos = end + 1;
        return;
      }
      from = end + 1;
    }
  }

  private key(start: number, end: number): string {
    const key = this.text.slice(start + 1, end - 1);
    if (!key.includes("\\")) return key;
    const decoded = parseString(this.text.slice(start, end));
    if (decoded === undefined) throw new Malformed();
    return decoded;
  }

  private at(c: number): boolean {
    return this.text.charCodeAt(this.pos) === c;
  }

  private take(c: number): void {
    if (!this.at(c)) throw new Malformed();
    this.pos++;
  }
}
