package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func set(key, value string) Edit { return Edit{Key: key, Value: []byte(value)} }

func remove(key string) Edit { return Edit{Key: key} }

func TestEdit(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		edits    []Edit
		want     string
	}{
		{"nothing", ` {"a":1} `, nil, ` {"a":1} `},
		{"remove what is not there", ` { "a" : 1 } `, []Edit{remove("b")}, ` { "a" : 1 } `},
		{"add to empty", `{}`, []Edit{set("a", "1")}, `{"a":1}`},
		{"add to empty with space", " { } ", []Edit{set("a", "1")}, ` { "a":1} `},
		{"add two to empty", `{}`, []Edit{set("a", "1"), set("b", "2")}, `{"a":1,"b":2}`},
		{"add", "{\n  \"a\": 1\n}\n", []Edit{set("b", "2")}, "{\n  \"a\": 1,\"b\":2\n}\n"},
		{"add key that needs escapes", `{"a":1}`, []Edit{set("b\"\n", "2")}, `{"a":1,"b\"\n":2}`},
		{"replace", `{ "a" : 1 , "b" : 2 }`, []Edit{set("a", `{"x":[]}`)}, `{ "a" : {"x":[]} , "b" : 2 }`},
		{"replace last", `{ "a" : 1 , "b" : 2 }`, []Edit{set("b", `"y"`)}, `{ "a" : 1 , "b" : "y" }`},
		{"replace escaped key", `{"\u0061":1}`, []Edit{set("a", "2")}, `{"\u0061":2}`},
		{"replace last of duplicates", `{"a":1,"b":2,"a":3,"c":4,"a":5}`, []Edit{set("a", "9")}, `{"b":2,"c":4,"a":9}`},
		{"remove first", `{ "a" : 1 , "b" : 2 }`, []Edit{remove("a")}, `{ "b" : 2 }`},
		{"remove middle", `{ "a" : 1 , "b" : 2 , "c" : 3 }`, []Edit{remove("b")}, `{ "a" : 1 , "c" : 3 }`},
		{"remove last", `{ "a" : 1 , "b" : 2 }`, []Edit{remove("b")}, `{ "a" : 1 }`},
		{"remove only", `{ "a" : 1 }`, []Edit{remove("a")}, `{  }`},
		{"remove first two", `{"a":1,"b":2,"c":3}`, []Edit{remove("a"), remove("b")}, `{"c":3}`},
		{"remove last two", `{"a":1,"b":2,"c":3}`, []Edit{remove("c"), remove("b")}, `{"a":1}`},
		{"remove ends", `{"a":1,"b":2,"c":3}`, []Edit{remove("c"), remove("a")}, `{"b":2}`},
		{"remove all", `{ "a":1, "b":2, "c":3 }`, []Edit{remove("c"), remove("a"), remove("b")}, `{  }`},
		{"remove duplicates", `{"a":1,"b":2,"a":3}`, []Edit{remove("a")}, `{"b":2}`},
		{"remove all, add", `{"a":1,"b":2}`, []Edit{remove("a"), set("c", "3"), remove("b")}, `{"c":3}`},
		{"remove last, add", `{"a":1,"b":2}`, []Edit{remove("b"), set("c", "3")}, `{"a":1,"c":3}`},
		{"remove first, replace next", `{"a":1,"b":2}`, []Edit{remove("a"), set("b", "9")}, `{"b":9}`},
		{"replace, remove next", `{"a":1,"b":2}`, []Edit{set("a", "9"), remove("b")}, `{"a":9}`},
		{"replace, add", `{"a":1}`, []Edit{set("a", "9"), set("b", "2")}, `{"a":9,"b":2}`},
		{"empty value removes", `{"a":1,"b":2}`, []Edit{{Key: "a", Value: []byte{}}}, `{"b":2}`},
		{"last edit of a key counts: set", `{"a":1}`, []Edit{remove("a"), set("a", "2"), set("a", "3")}, `{"a":3}`},
		{"last edit of a key counts: remove", `{"a":1}`, []Edit{set("a", "2"), remove("a")}, `{}`},
		{"last edit of a key counts: add", `{}`, []Edit{set("b", "1"), set("b", "2")}, `{"b":2}`},
		{"last edit of a key counts: add nothing", `{}`, []Edit{set("b", "1"), remove("b")}, `{}`},
		{"big integers stay", `{"seed":9007199254740993,"x":1}`, []Edit{remove("x")}, `{"seed":9007199254740993}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := ParseObject([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			p := o.Edit(tc.edits)
			if got := string(p.Bytes()); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if p.Len() != int64(len(tc.want)) {
				t.Errorf("Len() = %d, want %d", p.Len(), len(tc.want))
			}
			if !json.Valid(p.Bytes()) {
				t.Error("not JSON")
			}
			if string(o.Raw()) != tc.in {
				t.Errorf("the object changed to %s", o.Raw())
			}
		})
	}
}

// checkEdit compares the outcome of an edit with a model: a list of members.
// Members that stay must be the same bytes, from key to value.
func checkEdit(t *testing.T, o *Object, edits []Edit) {
	t.Helper()
	final := map[string][]byte{} // key to value, empty to remove
	var order []string
	for i, e := range edits {
		if later := edits[i+1:]; !containsKey(later, e.Key) {
			order = append(order, e.Key)
		}
		final[e.Key] = e.Value
	}
	last := map[string]int{}
	for i := range o.members {
		key, _ := o.At(i)
		last[key] = i
	}
	var want []string
	for i, m := range o.members {
		key, _ := o.At(i)
		value, edited := final[key]
		switch {
		case !edited:
			want = append(want, string(o.raw[m.KeyStart:m.ValueEnd]))
		case len(value) > 0 && last[key] == i:
			want = append(want, string(o.raw[m.KeyStart:m.ValueStart])+string(value))
		}
	}
	for _, key := range order {
		if _, there := last[key]; !there && len(final[key]) > 0 {
			want = append(want, string(AppendString(nil, key))+":"+string(final[key]))
		}
	}

	got := o.Edit(edits).Bytes()
	after, err := ParseObject(got)
	if err != nil {
		t.Fatalf("%s\nedited by %s gives\n%s: %v", o.raw, edits, got, err)
	}
	var members []string
	for _, m := range after.members {
		members = append(members, string(got[m.KeyStart:m.ValueEnd]))
	}
	if diff := cmp.Diff(want, members); diff != "" {
		t.Fatalf("%s\nedited by %s gives\n%s\n(-want +got):\n%s", o.raw, edits, got, diff)
	}
	open := bytes.IndexByte(o.raw, '{') + 1
	if !bytes.HasPrefix(got, o.raw[:open]) || !bytes.HasSuffix(got, o.raw[o.close:]) {
		t.Fatalf("%s\nedited by %s gives\n%s: what is around the members changed", o.raw, edits, got)
	}
}

func containsKey(edits []Edit, key string) bool {
	for _, e := range edits {
		if e.Key == key {
			return true
		}
	}
	return false
}

func TestEditAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(s ...string) string { return s[rng.IntN(len(s))] }
	space := func() string { return pick("", "", " ", "\n\t", " \r\n ") }
	key := func() string { return pick("a", "b", "c", "d", "model", "é", `q"`, "") }
	value := func() string {
		return pick("1", "-2.5e3", "null", "true", `""`, `"}\",{"`, `"\\"`, "[]", "{}", `[ 1, {"a":2} ]`, `{"a": "b", "c":[]}`)
	}
	for range 2_000 {
		var b strings.Builder
		b.WriteString(space() + "{" + space())
		for i := range rng.IntN(6) {
			if i > 0 {
				b.WriteString("," + space())
			}
			k := string(AppendString(nil, key()))
			if k == `"a"` && rng.IntN(2) == 0 {
				k = `"\u0061"`
			}
			b.WriteString(k + space() + ":" + space() + value() + space())
		}
		b.WriteString("}" + space())
		o, err := ParseObject([]byte(b.String()))
		if err != nil {
			t.Fatalf("%s: %v", b.String(), err)
		}
		var edits []Edit
		for range rng.IntN(5) {
			if rng.IntN(2) == 0 {
				edits = append(edits, remove(key()))
			} else {
				edits = append(edits, set(key(), value()))
			}
		}
		checkEdit(t, &o, edits)

		// What encoding/json reads agrees as well.
		want := map[string]any{}
		if err := json.Unmarshal(o.Raw(), &want); err != nil {
			t.Fatal(err)
		}
		for _, e := range edits {
			delete(want, e.Key)
			if len(e.Value) > 0 {
				var v any
				if err := json.Unmarshal(e.Value, &v); err != nil {
					t.Fatal(err)
				}
				want[e.Key] = v
			}
		}
		got := map[string]any{}
		if err := json.Unmarshal(o.Edit(edits).Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\nedited by %s (-want +got):\n%s", o.raw, edits, diff)
		}
	}
}

func (e Edit) String() string { return fmt.Sprintf("%q=%s", e.Key, e.Value) }

func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":2}`), "a", "3", "c", "")
	f.Add([]byte(` { "a" : [ ] , "\u0061" : {} } `), "a", "", "b", "null")
	f.Add([]byte(`{}`), "x", "1", "x", "2")
	f.Fuzz(func(t *testing.T, in []byte, key1, value1, key2, value2 string) {
		o, err := ParseObject(in)
		if err != nil {
			return
		}
		var edits []Edit
		for _, e := range []Edit{set(key1, value1), set(key2, value2)} {
			if e.Value = bytes.TrimSpace(e.Value); len(e.Value) > 0 && !json.Valid(e.Value) {
				e.Value = AppendString(nil, e.Value)
			}
			if wrapped, err := ParseObject([]byte(`{"a":` + string(e.Value) + `}`)); err != nil || wrapped.Len() != 1 {
				e.Value = nil // too deep
			}
			// A key that is no text is written with U+FFFD in it.
			e.Key = strings.ToValidUTF8(e.Key, "?")
			edits = append(edits, e)
		}
		checkEdit(t, &o, edits)
	})
}

func TestPiecesReader(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Pieces
	}{
		{"none", nil},
		{"one", Pieces{[]byte("hello")}},
		{"several", Pieces{[]byte("he"), []byte("l"), []byte("lo")}},
		{"empty pieces", Pieces{nil, []byte("he"), {}, nil, []byte("llo"), nil}},
		{"only empty pieces", Pieces{nil, {}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.p.Bytes()
			if err := iotest.TestReader(tc.p.Reader(), want); err != nil {
				t.Error(err)
			}
			for size := 1; size <= len(want)+1; size++ {
				var got []byte
				r := tc.p.Reader()
				buf := make([]byte, size)
				for {
					n, err := r.Read(buf)
					got = append(got, buf[:n]...)
					if err == io.EOF {
						break
					}
					if n == 0 {
						t.Fatalf("read of %d gave nothing", size)
					}
				}
				if string(got) != string(want) {
					t.Errorf("reads of %d: got %q, want %q", size, got, want)
				}
			}
			var out bytes.Buffer
			n, err := tc.p.Reader().(io.WriterTo).WriteTo(&out)
			if err != nil || n != int64(len(want)) || out.String() != string(want) {
				t.Errorf("WriteTo = %d, %v, %q", n, err, out.String())
			}
			if err := tc.p.Reader().Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// limitedWriter takes n bytes and then fails, or keeps quiet about it.
type limitedWriter struct {
	n     int
	quiet bool
	got   []byte
}

var errFull = errors.New("full")

func (w *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.n)
	w.n -= n
	w.got = append(w.got, b[:n]...)
	if n < len(b) && !w.quiet {
		return n, errFull
	}
	return n, nil
}

func TestPiecesReaderGoesOnAfterAFailedWrite(t *testing.T) {
	p := Pieces{[]byte("abc"), []byte("def"), []byte("ghi")}
	for limit := range 9 {
		for _, quiet := range []bool{false, true} {
			r := p.Reader()
			head := make([]byte, 1)
			if _, err := io.ReadFull(r, head); err != nil {
				t.Fatal(err)
			}
			w := &limitedWriter{n: limit, quiet: quiet}
			n, err := r.(io.WriterTo).WriteTo(w)
			want := errFull
			if quiet {
				want = io.ErrShortWrite
			}
			if limit == 8 {
				want = nil
			}
			if n != int64(limit) || !errors.Is(err, want) {
				t.Errorf("limit %d: WriteTo = %d, %v", limit, n, err)
			}
			rest, err := io.ReadAll(r)
			if got := string(head) + string(w.got) + string(rest); got != "abcdefghi" || err != nil {
				t.Errorf("limit %d: got %q, %v", limit, got, err)
			}
		}
	}
}
