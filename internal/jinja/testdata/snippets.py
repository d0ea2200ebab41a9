"""Renders small templates with Jinja2 and prints them with the results as JSONL.

    python snippets.py > snippets.jsonl

Needs jinja2 3.1.6. The environment is that of Hugging Face's transformers: an
immutable sandbox with trim_blocks and lstrip_blocks, loop controls, the
generation tag, tojson as json.dumps, namespaces without names that begin with an
underscore, raise_exception and strftime_now (at a fixed time). Each line holds the source, the variables that it names, and the
output or null when compiling or rendering fails.
"""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 9, 5, 3, 123456)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


VARS = {
    "s": "Hello, World",
    "u": "Grüße, 世界 😀 ß ŉ İ ΑΣ",
    "ws": " \t\n\u00a0\u3000pad\u2028\x1c ",
    "lines": "a\nb\r\nc\rd\x0be\u2028f\n\n",
    "html": "<b a='x' c=\"y\">&amp;</b>",
    "quote": "it's",
    "both": "it's \"q\"",
    "ctl": "\x00\x01\x1f\x7f\x80\xa0\u200b\u2028\ufeff\U000e0001\t\r\n\\",
    "n": 7,
    "neg": -7,
    "zero": 0,
    "big": 123456789012345678901234567890,
    "f": 2.5,
    "fi": 3.0,
    "tiny": 1e-07,
    "huge": 1e22,
    "t": True,
    "fa": False,
    "no": None,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"],
    "mixed": [1, 2.0, None, True, "a'b", 'q"d', "é\n", [], {}],
    "e": [],
    "d": {"b": 1, "a": 2.0, "C": None, "items": "own", "n": {"x": [1, {"y": "z"}]}},
    "ed": {},
    "msgs": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <there> & 'you'"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0, "y": "ü"}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "one"}, {"type": "image"}]},
        {"role": "user", "content": "Bye"},
    ],
    "users": [
        {"name": "Bob", "age": 30, "a": {"b": 2}},
        {"name": "alice", "age": 25, "a": {"b": 1}},
        {"name": "Carl", "age": 30, "a": {"b": 3}},
    ],
    "schema": {
        "type": "object",
        "properties": {"q": {"type": "string", "enum": ["a", "b"]}, "k": {"type": "integer", "default": 3}},
        "required": ["q"],
    },
}

EXPRESSIONS = r"""
none
true
1.0
4/2
5//2
-5%3
5%-3
-5//3
5.5//2
-5.5%2
5.5%-2
7//-2.0
2**3
2**-1
2**0.5
2**3**2
-2**2
-(2**2)
1/3
10/4
1e16
1e15
123456789012345680.0
1e-5
0.0001
1.10
-0.0
1e22
1.5e300*1e10
0.1+0.2
100000000000000000000
big*big
big//7
big%7
big/7
-big//7
big+1.5
9223372036854775807+1
-9223372036854775808-1
9223372036854775807*2
2**64
2**63-1
2**200
(-3)**3
1_000
1_0.5_0
0x1F
0b101
0o17
1e3
1.5E-3
5/0
5//0
5%0
5.0/0
1 + 'a'
'a' + 1
'a' + 'b' + 'c'
'a' ~ 1 ~ none ~ true ~ 1.0
'a' ~ [1] ~ {}
'ab' * 3
3 * 'ab'
'ab' * -1
'ab' * 2.0
[1,2] * 2
2 * (1,)
[1] + [2]
(1,) + (2,3)
[1] + (2,)
true + true
true * 3
-true
+true
not 1
not ''
- 'a'
n - 1
l - [1]
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
'1' == 1
none == false
[1,2] == [1,2.0]
{'a':1,'b':2} == {'b':2,'a':1}
(1,2) == [1,2]
[1,2] < [1,3]
[1] < [1,2]
'a' < 'b'
'Z' < 'a'
1 < 'a'
none < 1
[1] < ['a']
2 in l
'a' in 'cat'
1 in 'cat'
'x' in none
'b' in d
2 not in l
none in [none]
undefined in [1]
1 in undefined
(1,2) in {(1,2): 3}
[1] in {}
1 and 0
0 or 'x'
'' or none
[] and 1
1 if t else 2
1 if fa else 2
1 if fa
(1 if fa) is defined
1 if t else 2 if fa else 3
'a' if fa else 'b' if fa else 'c'
mixed
d
ed
e
()
(1,)
(1,2)
[1,]
{'a': 1,}
{1: 2, none: 3, 1.5: 4, true: 5}
{'a': {'b': [1, (2,)]}}
'adjacent' ' strings' "join"
'it\'s'
"a\nb\tc\\d\x41\u00e9\U0001F600\101\7"
'\q\é\世'
'\
x'
[quote, both, ctl]
[u, ws]
[html]
msgs[0].role
msgs[0]['role']
msgs[-1].content
msgs[10]
msgs[10] is defined
msgs[10].role
msgs['0']
msgs.0.role
l[0]
l[-1]
l[true]
l[1.0]
l[3]
l['x']
s[0]
s[-1]
s[99]
u[0:6]
u[-3:]
u[::-1]
u[7]
u[2:20:3]
s[1:4]
s[:-1]
s[-5:-1]
s[5:2]
s[::2]
s[::-1]
s[-1:-4:-1]
s[100:]
s[:100]
s[none:none:none]
s[1.0:]
l[::-1]
l[1:]
l[:1]
l[-2:]
l[0:10:2]
l[::0]
(1,2,3)[1:]
range(10)[2:8:2]
range(10)[::-1]
range(5)|list
range(2,8,3)|list
range(5,0,-2)|list
range(3)
range(1,10,2)
range(0)
range(3)[1]
range(3)[5]
range(200000)
range(1.5)
range(3)|length
2 in range(3)
none[0]
no.x
no['x']
undefined
undefined.x
undefined[0]
undefined[0:1]
undefined|length
undefined + 1
undefined ~ 'x'
undefined == undefined
undefined == none
undefined is undefined
[undefined]
undefined()
undefined < 1
undefined|list
undefined|join
undefined|upper
undefined|trim
undefined|first
undefined|last
undefined|items|list
undefined|default('x')
undefined|d
no|default('x')
no|default('x', true)
''|default('x', boolean=true)
d.missing
d.missing is defined
d.missing.x
d.items()
d['items']
ed['items'] is defined
ed.items()|list
d.keys()
d.values()
d.keys()|list
d.items()|list|length
d.get('b')
d.get('zz')
d.get('zz', 5)
d.get('zz', default=5)
d.n.x[1].y
d['n']['x'][0]
d.update({'q': 1})
d.update
d.update is defined
d.pop('b')
l.append(1)
l.append
l.index(2)
l.index(9)
l.count(1)
l.copy()
(1,2,1).count(1)
d.copy() == d
d.__class__
d._x
s.__class__.__mro__
{'_k': 1}._k
{'_k': 1}['_k']
d|length
d|list
d|first
d|last
s|length
u|length
no|length
n|length
e|length
s|upper
s|lower
u|upper
u|lower
u|title
u|capitalize
u.upper()
u.lower()
u.title()
u.capitalize()
u.swapcase()
'hELLO wORLD'|title
"they're bill's"|title
"they're bill's".title()
'foo-bar (baz) [x] {y} <z>'|title
'ﬁ ǆ ᾳ'.title()
'ΌΔΟΣ ΣΑΣ Σ'.lower()
none|upper
n|upper
no|trim
[1,'a']|trim
ws|trim
[ws.strip()]
[ws.lstrip()]
[ws.rstrip()]
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
'abc'.strip('')
'aab'|trim('a')
s.strip(none)
s.strip(1)
s.split(', ')
s.split('l')
s.split('l', 1)
s.split('l', maxsplit=1)
s.split(sep='l')
'  a  b c '.split()
'  a  b c '.split(none, 1)
'  a  b c '.rsplit(none, 1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.rsplit(',')
'a,b,c'.split(',', -1)
'a,b,c'.split(',', 0)
''.split()
''.split(',')
s.split('')
lines.splitlines()
lines.splitlines(true)
'a'.splitlines()
''.splitlines()
s.startswith('He')
s.startswith(('x','He'))
s.startswith(['He'])
s.startswith('l', 2)
s.startswith('', 99)
s.endswith('ld')
s.endswith(('ld', 'x'))
s.endswith('lo', 0, 5)
s.replace('l', 'L')
s.replace('l', 'L', 2)
s.replace('', '-')
u.replace('', '-')
s.replace('l')
s|replace('l', 'L')
s|replace('l', 'L', 1)
[1,2]|replace('1', 'x')
n|replace(7, 8)
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
u.find('世')
u.rfind(' ')
s.index('zz')
s.count('l')
s.count('')
u.count('', 3)
s.count('o', 5)
s.partition(', ')
s.partition('zz')
s.rpartition('o')
s.rpartition('zz')
','.join(['a','b'])
','.join([1])
','.join('abc')
','.join({'a':1,'b':2})
s.center(20, '*')
s.center(21, '*')
'ab'.center(5)
'a'.center(4)
s.ljust(15) ~ '|'
s.rjust(15, '.')
'5'.zfill(3)
'-5'.zfill(4)
'+5'.zfill(4)
'abc'.zfill(2)
'ß'.zfill(3)
'abc'.removeprefix('ab')
'abc'.removesuffix('bc')
'abc'.removeprefix('x')
'a\tb'.expandtabs()
'a\tb\n\tc'.expandtabs(4)
'123'.isdigit()
'²'.isdigit()
'½'.isnumeric()
'一'.isnumeric()
'一'.isdigit()
'٣'.isdecimal()
'abc'.isalpha()
'ab1'.isalpha()
'ab1'.isalnum()
''.isalpha()
' '.isspace()
ws.isspace()
'ABC'.isupper()
'abc'.islower()
'ab C'.islower()
'Ab Cd'.istitle()
'ab'.isidentifier()
'1b'.isidentifier()
'é'.isascii()
ctl.isprintable()
'a'.foo
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format(1, 'a')
'{a} {b[x]} {c.role}'.format(a=1, b={'x': 2}, c=msgs[0])
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d}|{:+d}|{: d}|{:x}|{:X}|{:#x}|{:b}|{:o}|{:c}'.format(42, 42, 42, 255, 255, 255, 5, 8, 65)
'{:.2f}|{:e}|{:g}|{:.3}|{:%}|{:10.3f}|{:<8.1f}|'.format(3.14159, 12345.678, 0.0001, 2.0, 0.25, 2.5, 1.25)
'{:,}|{:_}|{:,.2f}|{:010,}|{:08.2f}'.format(1234567, 1234567, 1234567.891, 1234, -3.14159)
'{!r}|{!s}|{!a}'.format('é', 'é', 'é')
'{:{w}}|'.format('a', w=5)
'{{}}'.format()
'{'.format()
'}'.format()
'{}'.format()
'{x}'.format()
'{} {0}'.format(1)
'{:d}'.format('a')
'{:s}'.format(1)
'{:.2}'.format('abc')
'{:>3}'.format(none)
'{}'.format(none)
'{}'.format([1, 'a'])
'{:5}|{:5}|'.format(true, 1.5)
'{.x}'.format(msgs[0])
'{:.3}|{:.3}|{:.1}|{:.10}'.format(1234.5, 10.0, 5.0, 1.5)
'%s %s' % (1, 'a')
'%s' % 'a'
'%s' % [1]
'%s' % none
'%d' % 3.7
'%d' % '3'
'%5d|%-5d|%05d|%+d|% d' % (42, 42, 42, 42, 42)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%f %.2f %e %g %G' % (1.5, 2.345, 12345.678, 0.00001, 1e20)
'%r %a' % ('é', 'é')
'%c%c' % (65, 'b')
'%%'  % ()
'%s %s' % 1
'%s' % (1, 2)
'x' % 1
'x' % {}
'%(a)s %(b)d' % {'a': 1, 'b': 2}
'%(z)s' % {}
'%*d|%.*f' % (5, 42, 2, 3.14159)
'%.2s|%5s|%-5s|' % ('abc', 'a', 'b')
'%s'|format(true)
'%s %s'|format('a', 1)
'%(a)s'|format(a=1)
'%s'|format
'%5.1f%%'|format(12.345)
'%i' % true
'%s' % (undefined,)
l|sort
ls|sort
ls|sort(case_sensitive=true)
l|sort(reverse=true)
users|sort(attribute='age')|map(attribute='name')|list
users|sort(attribute='age,name')|map(attribute='name')|join(',')
users|sort(attribute='a.b')|map(attribute='name')|join(',')
users|sort(true, attribute='age')|map(attribute='name')|join(',')
[1,'a']|sort
['a']|sort
d|dictsort
{'b':1,'A':2,'c':0}|dictsort
{'b':1,'A':2,'c':0}|dictsort(true)
{'b':1,'A':2,'c':0}|dictsort(false, 'value')
{'b':1,'A':2,'c':0}|dictsort(reverse=true)
{'b':1}|dictsort(by='x')
l|min
l|max
ls|min
ls|max
e|min
e|max is defined
users|max(attribute='age')
l|sum
users|sum(attribute='age')
e|sum
[[1],[2]]|sum(start=[])
['a']|sum
[1.5, 2]|sum
l|first
l|last
e|first
e|last is defined
s|first
s|last
l|join
l|join(', ')
l|join(1)
users|join(', ', attribute='name')
s|join('-')
no|join
l|reverse|list
s|reverse
u|reverse
d|reverse|list
l|list
s|list
d.items()|list
l|unique|list
['a','A','b',1,1.0,true]|unique|list
['a','A','b']|unique(true)|list
[[1]]|unique|list
users|unique(attribute='age')|map(attribute='name')|list
[1,2,3,4,5]|batch(2)|list
[1,2,3,4,5]|batch(2, 'x')|list
[1,2,3,4,5]|slice(2)|list
[1,2,3,4,5]|slice(2)|sort(reverse=true)
[1,2,3,4,5]|batch(2, 9)|sort(reverse=true)|tojson
'aAbB'|unique|sort(case_sensitive=true)
[1,2,3]|map('default', 5)|sort(true)
[1,2,3,4,5]|slice(3, 'x')|list
users|groupby('age')
(users|groupby('age'))[1].list|length
(users|groupby('age'))[0].grouper
users|groupby('name')|map('first')|list
users|groupby('zz', default=1)|length
ls|map('upper')|list
ls|map('upper')|map('lower')|join
l|map('string')|list
l|map('nope')|list
e|map('nope')|list
users|map(attribute='name')|list
users|map(attribute='zz')|list
users|map(attribute='zz', default='?')|list
users|map(attribute='a.b')|list
[[1,2],[3,4]]|map(attribute=1)|list
[[1,2],[3,4]]|map(attribute='0')|list
users|map('attr', 'name')|list
[3,0,1,'',none,'x']|select|list
l|select('odd')|list
l|select('greaterthan', 1)|list
l|reject('odd')|list
l|select('divisibleby', 2)|list
msgs|selectattr('role', 'equalto', 'user')|map(attribute='content')|list
msgs|selectattr('role', '==', 'user')|list|length
msgs|selectattr('tool_calls')|list|length
msgs|selectattr('tool_calls', 'defined')|list|length
msgs|rejectattr('role', 'in', ['user', 'system'])|map(attribute='role')|join(',')
msgs|rejectattr('tool_calls')|list|length
msgs|selectattr('role', 'nope')|list
msgs|selectattr('content', 'string')|list|length
msgs|selectattr('role', 'equalto', 'user')|length
msgs|selectattr|list
(msgs|selectattr('role', 'equalto', 'zz')) is defined
'yes' if msgs|selectattr('role', 'equalto', 'zz') else 'no'
(msgs|selectattr('role'))[0] is defined
msgs|selectattr('role')|first|length
msgs|selectattr('role')|last
n|abs
neg|abs
'a'|abs
f|int
'42'|int
'42.9'|int
'x'|int
'x'|int(5)
'0x1f'|int(base=16)
'1f'|int(0, 16)
'0b11'|int(0, 2)
' 12 '|int
'1_000'|int
'-7'|int
'٣٤'|int
no|int
l|int
true|int
'1e3'|int
'inf'|int
undefined|int
1e400|int
'3.5'|float
'x'|float
'x'|float(1)
' 1e5 '|float
'nan'|float
'-inf'|float
no|float
n|float
2.5|round
3.5|round
2.675|round(2)
1234.567|round(-2)
1250|round(-2)
1350|round(-2)
n|round
f|round(0, 'ceil')
f|round(0, 'floor')
42.55|round(1, 'floor')
42.55|round(1, 'ceil')
-2.5|round
1.005|round(2)
'a'|round
2.5|round(method='zz')
n|string
no|string ~ 'x'
s|string
[1,'a']|string
s|wordcount
'a-b c_d é 1'|wordcount
s|center(20)
'ab'|center(5) ~ '|'
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2)
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, true, true)
'a\nb'|indent('> ')
'a\nb'|indent(width=2, first=true)
n|indent
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foo bar baz qux'|truncate(5, true, '', 0)
'foo'|truncate(1)
html|e
html|escape
html|forceescape
html|e|e
(html|e)|forceescape
html|safe
(html|safe) + '<i>'
'<i>' + (html|safe)
(html|safe) ~ '<i>'
[html|safe]
('<b>%s</b>'|safe) % '<i>'
('<b>{}</b>'|safe).format('<i>')
('<b>'|safe).join(['<i>', 'x'|safe])
['<i>'|safe, '<b>']|join
('<b>'|safe)|upper
('<b>'|safe)[0:2] + '<'
('<b>'|safe)|replace('b', '<')
('<b>'|safe).replace('b', '<')
('<b>'|safe) is string
('<b>'|safe) is escaped
'<b>' is escaped
('a'|safe) == 'a'
('a'|safe)|tojson
{'a'|safe: 1}['a']
('ab'|safe) * 2
s|urlencode
'/a b?ü&=~'|urlencode
{'a b': 'ü/', 'c': 1}|urlencode
{'class': 'x', 'id': none, 'v': '<'}|xmlattr
{'a b': 1}|xmlattr
1|filesizeformat
500|filesizeformat
1500|filesizeformat
1536|filesizeformat(true)
'1e9'|filesizeformat
d|attr('items') is callable
d|attr('b') is defined
s|attr('upper') is callable
mixed|tojson
d|tojson
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='\t')
schema|tojson(indent=4)
ed|tojson(indent=2)
e|tojson(indent=2)
[[], {}, [1]]|tojson(indent=2)
d|tojson(sort_keys=true)
{'b':1,'a':2}|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent=1, separators=(';', '='))
u|tojson
u|tojson(ensure_ascii=true)
ctl|tojson
ctl|tojson(true)
html|tojson
'/'|tojson
big|tojson
[1.0, 1e16, 1e-7, 0.1, -0.0]|tojson
(1,2)|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1,2): 3}|tojson
undefined|tojson
no|tojson
range(3)|tojson
d.items()|tojson
l|map('string')|tojson
'nan'|float|tojson
'inf'|float|tojson
t is true
t is boolean
1 is true
1 is boolean
fa is false
no is none
undefined is none
s is string
n is number
t is number
f is float
n is float
n is integer
t is integer
big is integer
d is mapping
l is mapping
d is sequence
s is sequence
l is sequence
n is sequence
(l|map('string')) is sequence
s is iterable
n is iterable
no is iterable
(l|map('string')) is iterable
d.items is callable
range is callable
s is callable
'abc' is lower
'ABC' is upper
'a1' is lower
1 is lower
n is odd
n is even
2.0 is even
'a' is odd
6 is divisibleby 3
6 is divisibleby(4)
6 is divisibleby 0
n is eq 7
n is equalto 7
n is ne 7
n is lt 8
n is le 7
n is gt 8
n is ge 7
n is == 7
n is in [7]
n is not in [7]
n is sameas 7
no is sameas none
n is not none
n is defined and s is string
not n is none
'upper' is filter
'nope' is filter
'odd' is test
'nope' is test
n is nope
n|nope
n is odd if true else false
n is string or s is string
dict(a=1, b='x')
dict({'a': 1}, b=2)
dict([('a', 1), ['b', 2]])
dict(d|dictsort)
dict.fromkeys(['a','b'], 1)
dict(1)
namespace(a=1)
namespace({'a': 1}).a
namespace(a=1).b is defined
namespace(_a=1)
cycler('a','b').next()
joiner()()
lipsum is defined
raise_exception('boom')
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y')
strftime_now('%-d %B %y, %A %a %j %p %I')
strftime_now('%e|%k|%l|%D|%F|%T|%R|%f|%U|%W|%V|%G|%u|%w|%C|%h|%n|%t|%%|%z|%Z|')
strftime_now('%-m/%-H/%_d/%05d/%^b/%#p/%c/%x/%X/%r')
strftime_now(1)
[1,2]|first + 1
-1|abs
(-1)|abs
[1,2][0]|string + 'x'
'a'|upper ~ 'b'|lower
loop is defined
self
self is defined
s.upper()[0]|lower
s.split(',')[0].strip()|upper|lower|title
{'a': 1}.a + {'b': 2}['b']
[[1,2],[3]][0][1]
'%s-%s' % (d.b, d['a'])
d.items()|map('first')|list
d.n.x[1]['y']|upper
(l|length - 1) - 0
l|length == 3 and s|length > 5
not l|length == 3
'a,b' .split(',')
1 if l|length > 2 else 0
msgs[1:]|length
msgs[1:][0].content
msgs[::-1]|map(attribute='role')|join(' ')
msgs|map(attribute='role')|list|unique|list
(1,2,3)|length
((1))
((1,))
[(1, 2), (3, 4)]|map('last')|list
[] is sameas []
{'a':1}|items|list
l.0
l|join(',')|replace(',', ';')
1 }} {{ 2
1, 2
*l
{**d}
lambda x: x
l[0, 1]
d[1:2]
d[[1]]
{[1]: 2}
{d: 1}
[s.upper]|length
'x'.center(10**30)
10**5000
2**100000
'a' * 10**12
[0] * 10**12
"%0*d" % (5, 3)
""".strip("\n").split("\n")

TEMPLATES = [
    # Whitespace.
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}\n  b\n  {% endif %}\n  c",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c",
    "a\n  {%+ if true +%}\n  b\n  {%+ endif +%}\n  c",
    "a {% if true %} b {% endif %} c",
    "{{ 1 }}\n{{ 2 }}\n\n{{- 3 -}}\n\n{{ 4 }}",
    "  {{ 1 }}\n  {{+ 2 }}\n",
    "{{-1}} {{+1}} {{- -1 }}",
    "x{# c #}\ny\n  {# c #}\n  z {#- c -#}  w\n{#+ c +#}\nq",
    "{#-#}a{#--#}b",
    "{{ 'a' }}   {% set x = 1 %}   {{ x }}",
    "{{ 'a' }}\n   {% set x = 1 %}\n   {{ x }}",
    "{% set x = 1 -%}\n\n  a{% set y = 2 %}\n\n  b",
    "   {% set x = 1 %}a",
    "\u00a0{% set x = 1 %}a\n\u3000 {% set x = 1 %}b",
    "\t\v{% set x = 1 %}a",
    "a\r\n{% if true %}\r\nb\r{% endif %}\r\nc\r\n",
    "no newline\n",
    "two newlines\n\n",
    "\n",
    "",
    "{% raw %}{{ x }} {% if %}{% endraw %}",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\n  b",
    "a {%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "{% raw +%}x{% endraw %}",
    "{%+ raw %} x {%+ endraw +%}\ny",
    "{% raw %}",
    "{% raw %}x",
    "a{#",
    "a{# b",
    "{{",
    "{%",
    "{{ }}",
    "{% %}",
    "{{ 1 ",
    "{% if true %}",
    "{% endif %}",
    "{% nope %}",
    "a { b } c {x} %} }} #}",
    "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a':1}}}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ [1} }}",
    "{{ 'abc }}",
    "{{ a$b }}",
    "{{ 1 +}}",
    "{{ 1 -}}  x",
    "{%if true%}a{%endif%}{%-if true-%} b {%-endif-%}",
    "{% if true: %}a{% else: %}b{% endif %}",
    # Scopes.
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns }}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if fa %}{% set x = 1 %}{% endif %}{{ x is defined }}",
    "{% if fa %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% if fa %}{% set n = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ n }}{{ q }}",
    "{% for i in l %}{% if i == 1 %}{% set x = i %}{% endif %}{{ x }};{% endfor %}{{ x is defined }}",
    "{% for i in l %}{% set n = i %}{{ n }}{% endfor %}{{ n }}",
    "{% for n in l %}{{ n }}{% endfor %}{{ n }}",
    "{% for i in l %}{{ q is defined }}{% set q = 1 %}{{ q }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% set x = i * j %}{{ x }}{% endfor %}{{ x is defined }}{% endfor %}",
    "{{ x is defined }}{% set x = 1 %}{{ x }}",
    "{{ n }}{% set n = n + 1 %}{{ n }}",
    "{% set n = n + 1 %}{{ n }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}",
    "{% set (a, (b, c)) = (1, (2, 3)) %}{{ a }}{{ b }}{{ c }}",
    "{% set a, b = l %}{{ a }}",
    "{% set a, b = 'xy' %}{{ a }}{{ b }}",
    "{% set a, b = {'k': 1, 'j': 2} %}{{ a }}{{ b }}",
    "{% set a = 1, %}{{ a }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = {} %}{% set ns.a = 1 %}",
    "{% set q.a = 1 %}",
    "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% set ns = namespace() %}{% set ns.a %}x{{ n }}{% endset %}[{{ ns.a }}]",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% set a.b.c = 2 %}",
    "{% set [a] = [2] %}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper | replace('A', '-') %}a{{ n }}b{% endset %}{{ x }}",
    "{% set x | replace('a', q) %}a{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('l', 'L') | trim %} {{ s }} {% endfilter %}",
    "{% filter nope %}x{% endfilter %}",
    "{% set x = 1 %}{% filter upper %}{% set x = 2 %}{{ x }}a{% endfilter %}{{ x }}",
    "{% print 1, 'a' %}",
    # For loops.
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }};{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }},{% endfor %}",
    "{% for i in l %}{{ loop }}{% endfor %}",
    "{% for i in l %}{{ loop.nope }}{{ loop['index'] }}{{ loop|length }}{% endfor %}",
    "{% for i in e %}x{% else %}empty{% endfor %}",
    "{% for i in l %}x{% else %}empty{% endfor %}",
    "{% for i in undefined %}x{% else %}empty{% endfor %}",
    "{% for i in no %}x{% endfor %}",
    "{% for i in n %}x{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l if q is defined %}{{ i }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items if v is number %}{{ k }}={{ v }}{{ loop.nextitem }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for a, b in [[1, 2], 'xy', (3, 4)] %}{{ a }}{{ b }};{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for c in u %}{{ c }}|{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% break %}{% else %}else{% endfor %}",
    "{% for i in l %}{% continue %}{% else %}else{% endfor %}",
    "{% for i in l %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% else %}else{% endfor %}",
    "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }},{% endfor %}{% endfor %}",
    "{% break %}",
    "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in l %}{% set x %}a{% break %}{% endset %}{{ x }}{% endfor %}z",
    "{% for i in l %}a{% filter upper %}b{% continue %}{% endfilter %}c{% endfor %}z",
    "{% for i in l %}{% for j in l %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}",
    "{% for loop in l %}{% endfor %}",
    "{% for i in l %}{% set loop = 1 %}{% endfor %}",
    "{% for i in l %}{% with loop=1 %}{{ loop }}{% endwith %}{% endfor %}",
    "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in l %}{% set outer = loop %}{% for j in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4, 'c': []}]}]}] recursive %}{{ x.v }}@{{ loop.depth }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}",
    "{% for x in [[1, [2]]] recursive %}{{ x }}{% else %}z{% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}",
    "{% for x in l|map('string') %}{{ x }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }};{% endfor %}",
    "{% for x in l|reverse %}{{ x }}{{ loop.revindex }}{% endfor %}",
    "{% for i in l %}{% endfor %}{{ i is defined }}{{ loop is defined }}",
    "{% for x in msgs if x.role == 'user' recursive %}{{ loop.index }}{{ x.content }}{% endfor %}",
    # Macros.
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=4) }}|{{ m(b=5, a=6) }}|{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(undefined) }}{{ m(none) }}",
    "{% macro m(a=b, b=1) %}{{ a is defined }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% macro m() %}{{ n }}{% set n = 5 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% set ns = namespace() %}{% for i in l %}{% macro m() %}[{{ i }}]{% endmacro %}{% set ns.f = m %}{% endfor %}{% for i in l %}{{ ns.f() }}{% endfor %}",
    "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m }}{{ m.name }}{{ m.arguments }}",
    "{% macro m() %}a{{ caller() }}b{% endmacro %}{% call m() %}X{{ n }}{% endcall %}",
    "{% macro m(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) m(l) %}<{{ x }}:{{ i }}>{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m(caller) %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m(caller=none) %}{{ caller is none }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}",
    "{% call n() %}{% endcall %}",
    "{% call s.upper() %}{% endcall %}",
    "{% call 1 %}{% endcall %}",
    "{% macro m() %} x {% endmacro %}{{ m()|trim ~ m()|length }}",
    "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ ls|map('upper')|join }}{{ [m('a'), m('b')] }}",
    "{% macro m(*a) %}{% endmacro %}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(1, **{'b': 2}) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, a=2) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% if t %}{% macro m() %}T{% endmacro %}{% else %}{% macro m() %}F{% endmacro %}{% endif %}{{ m() }}",
    "{% macro show(v, depth=0) %}{% if v is mapping %}{% for k, x in v.items() %}{{ '  ' * depth }}{{ k }}:\n{{ show(x, depth + 1) }}{% endfor %}{% elif v is string or v is not iterable %}{{ '  ' * depth }}{{ v }}\n{% else %}{% for x in v %}{{ show(x, depth + 1) }}{% endfor %}{% endif %}{% endmacro %}{{ show(schema) }}",
    "{% macro loopy() %}{{ loopy() }}{% endmacro %}{{ loopy() }}",
    # Generation blocks.
    "{% for m in msgs %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "a\n  {%- generation -%}\n b \n{%- endgeneration %}\nc",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    # Unknown filters and unsupported tags.
    "{% if fa %}{{ n|nope }}{% endif %}ok",
    "{% if t %}{{ n|nope }}{% endif %}",
    "{{ 1 if t else n|nope }}",
    "{{ n|nope if t else 1 }}",
    "{% if fa %}{% for i in l %}{{ i|nope }}{% endfor %}{% endif %}",
    "{% if fa %}{{ n is nope }}{% endif %}ok",
    "{{ n is nope if fa }}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% do l.append(1) %}",
    # Like in real templates.
    "{%- for message in msgs %}\n    {%- if message.role == 'user' %}\n        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n    {%- elif message.tool_calls %}\n        {%- for tool_call in message.tool_calls %}\n            {%- set tool_call = tool_call.function %}\n            {{- tool_call.name }}({{ tool_call.arguments | tojson }})\n        {%- endfor %}\n    {%- endif %}\n{%- endfor %}",
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools is none }}",
    "{% set tools = tools if tools is defined else [] %}{{ tools }}",
    "{%- set ns = namespace(last=msgs|length - 1, multi=true) %}{%- for m in msgs[::-1] %}{%- set index = (msgs|length - 1) - loop.index0 %}{%- if ns.multi and m.role == 'user' %}{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}{{ ns }}",
    "{% for m in msgs %}{% if m.content is string %}{{ m.content }}{% elif m.content is iterable %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<{{ p['type'] }}>{% endif %}{% endfor %}{% endif %}|{% endfor %}",
    "{{ msgs[0].content.split('.')[0] }}{{ msgs[2].content.split('.') }}",
    "{% set content = msgs[1].content|replace('<', '[') %}{{ content }}{{ content.startswith('Hi') and not content.endswith('x') }}",
    "{{ (msgs|selectattr('role', 'equalto', 'user')|list)[-1].content }}{{ msgs == msgs[:] }}{{ msgs[1] == msgs[-1] }}",
    "{% set sep = joiner(', ') %}{% for m in msgs %}{{ sep() }}{{ m.role }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% if msgs[0]['role'] == 'system' %}{% set sys = msgs[0]['content'] %}{% set rest = msgs[1:] %}{% else %}{% set rest = msgs %}{% endif %}{{ sys }}{{ rest|length }}",
    "{% for m in msgs %}{{ raise_exception('bad role ' ~ m.role) if m.role == 'tool' }}{% endfor %}",
    "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'x' }}",
    "{% set d2 = dict(d, **{'z': 1}) %}{{ d2.z }}{{ d2|length }}",
    "{% for t in [schema] %}{{ t|tojson(indent=4)|indent(2) }}{% endfor %}",
    "{{ '%s: %s'|format(msgs[0].role, msgs[0].content) }}{{ '{role}'.format(**msgs[0]) }}",
    "{% set x = 'a' %}{% for i in range(3) %}{% set x = x ~ i %}{% endfor %}{{ x }}",
    "{{ [1, 2, 3]|map('string')|join(' ')|length }}{{ {'a': [1, 2]}.a|last }}",
]


def names(src):
    return {k: VARS[k] for k in VARS if k in src}


def main():
    env = environment()
    for src in ["{{ %s }}" % x for x in EXPRESSIONS] + TEMPLATES:
        row = {"src": src, "vars": names(src), "out": None}
        try:
            row["out"] = env.from_string(src).render(**row["vars"])
            row["out"].encode()
        except Exception:
            row["out"] = None
        json.dump(row, sys.stdout, ensure_ascii=False)
        print()


main()
