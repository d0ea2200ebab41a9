package indexserver

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
)

func newLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func removed(hashes ...kv.BlockID) kv.Event {
	ev := kv.Event{Kind: kv.Removed}
	for _, h := range hashes {
		ev.Blocks = append(ev.Blocks, kv.Block{ID: h})
	}
	return ev
}

// The forms in which the same three events may come.
func TestEventForms(t *testing.T) {
	src := kv.Source{Worker: 1}
	b := blocks(48)
	events := []kv.Event{
		{Kind: kv.Stored, Blocks: b[:2]},
		{Kind: kv.Stored, Parent: b[1].ID, HasParent: true, Blocks: b[2:]},
		removed(b[2].ID),
	}
	var texts []string
	var packed [][]byte
	for i, ev := range events {
		raw, err := kv.AppendJSON(nil, src, uint64(i), &ev)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(raw))
		if raw, err = kv.AppendMsgpack(nil, src, uint64(i), &ev); err != nil {
			t.Fatal(err)
		}
		packed = append(packed, raw)
	}
	array := msgp.AppendArrayHeader(nil, 3)
	var sequence []byte
	for _, p := range packed {
		array, sequence = append(array, p...), append(sequence, p...)
	}
	for _, form := range []struct{ name, contentType, body string }{
		{"lines", "application/x-ndjson", strings.Join(texts, "\n") + "\n\n"},
		{"lines with CR", "application/jsonl", strings.Join(texts, "\r\n")},
		{"lines as JSON", "application/json; charset=utf-8", strings.Join(texts, "\n")},
		{"array", "application/json", " [ " + strings.Join(texts, " , ") + " ] "},
		{"msgpack", "application/msgpack", string(sequence)},
		{"msgpack array", "application/x-msgpack", string(array)},
	} {
		t.Run(form.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.must(t, "/register", registered)
			resp, out := r.do(t, "POST", "/events?model_name=m", form.contentType, form.body)
			if resp.StatusCode != 200 {
				t.Fatalf("status %d: %s", resp.StatusCode, out)
			}
			same(t, `{"applied":3,"stale":0,"missed":0,"skipped":{}}`, out)
			if got := r.must(t, "/query", tokenQuery("m", 100)); !strings.Contains(got, `"scores":{"1":{"0":32}}`) {
				t.Errorf("got %s", got)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		r := newRig(t, Config{})
		r.must(t, "/register", registered)
		for _, contentType := range []string{"application/json", "application/x-ndjson", "application/msgpack"} {
			_, out := r.do(t, "POST", "/events", contentType, "")
			same(t, `{"applied":0,"stale":0,"missed":0,"skipped":{}}`, out)
		}
	})
}

func TestEventIDs(t *testing.T) {
	r := newRig(t, Config{})
	r.must(t, "/register", registered)
	for _, step := range []struct {
		name, query, body, want string
		tokens                  int
	}{
		{"first, of any id", "", stored(1, 0, 7, kv.Device, blocks(16)),
			`{"applied":1,"stale":0,"missed":0,"skipped":{}}`, 16},
		{"again", "", stored(1, 0, 7, kv.Device, blocks(32)),
			`{"applied":0,"stale":1,"missed":0,"skipped":{}}`, 16},
		{"two events of one id", "", stored(1, 0, 8, kv.Device, blocks(32)) + stored(1, 0, 8, kv.Device, blocks(48)),
			`{"applied":2,"stale":0,"missed":0,"skipped":{}}`, 48},
		{"a gap", "", stored(1, 0, 11, kv.Device, blocks(64)),
			`{"applied":1,"stale":0,"missed":2,"skipped":{}}`, 64},
		{"late", "", stored(1, 0, 9, kv.Device, blocks(80)),
			`{"applied":0,"stale":1,"missed":0,"skipped":{}}`, 64},
		{"a new epoch", "&epoch=5", stored(1, 0, 0, kv.Device, blocks(16)),
			`{"applied":1,"stale":0,"missed":0,"skipped":{}}`, 16},
		{"an old epoch", "&epoch=4", stored(1, 0, 12, kv.Device, blocks(32)),
			`{"applied":0,"stale":1,"missed":0,"skipped":{}}`, 16},
		{"no epoch is the present one", "", stored(1, 0, 1, kv.Device, blocks(32)),
			`{"applied":1,"stale":0,"missed":0,"skipped":{}}`, 32},
		{"cleared", "", `{"worker_id":1,"event":{"event_id":2,"data":"cleared","dp_rank":0}}`,
			`{"applied":1,"stale":0,"missed":0,"skipped":{}}`, 0},
	} {
		same(t, step.want, r.must(t, "/events?model_name=m"+step.query, step.body))
		p, _ := r.find(poolKey{"m", "default"})
		got := 0
		for _, o := range p.index.Match(nil, blocks(100)) {
			got = int(o.Depth[kv.Device]) * 16
		}
		if got != step.tokens {
			t.Errorf("%s: %d tokens are held, want %d", step.name, got, step.tokens)
		}
	}
	if got := r.get(t, "/workers"); !strings.Contains(got, `"epoch":5,"last_event_id":2,"applied":7,"stale":3,"missed":2`) {
		t.Errorf("workers: %s", got)
	}
}

// A bad event is skipped, never the others.
func TestEventsSkipped(t *testing.T) {
	r := newRig(t, Config{})
	r.must(t, "/register", registered)
	lines := strings.Join([]string{
		stored(1, 0, 0, kv.Device, blocks(16)),
		`{"worker_id":1,`,
		`{"worker_id":1,"event":{"event_id":1,"data":"gone"}}`,
		stored(9, 0, 0, kv.Device, blocks(16)),
		stored(1, 0, 2, kv.Device, blocks(32)),
	}, "\n")
	_, out := r.do(t, "POST", "/events", "application/x-ndjson", lines)
	for _, want := range []string{`"applied":2`, `"missed":1`, `"skipped":{"malformed":2,"not_registered":1}`, `cleared`} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %s in it", out, want)
		}
	}
	many := strings.Repeat("{}\n", 100)
	if _, out := r.do(t, "POST", "/events", "application/x-ndjson", many); strings.Count(out, "kv event") != maxErrors || !strings.Contains(out, `"malformed":100`) {
		t.Errorf("a hundred bad events: %s", out)
	}
}

func FuzzEvents(f *testing.F) {
	s := New(Config{})
	if err := s.ensure(wanted{poolKey{"m", defaultGroup}, 16, []kv.Source{{Worker: 1}}}); err != nil {
		f.Fatal(err)
	}
	p, err := s.find(poolKey{"m", defaultGroup})
	if err != nil {
		f.Fatal(err)
	}
	ev := kv.Event{Kind: kv.Stored, Blocks: blocks(32)}
	packed, err := kv.AppendMsgpack(msgp.AppendArrayHeader(nil, 1), kv.Source{Worker: 1}, 0, &ev)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add([]byte("[" + stored(1, 0, 0, kv.Device, blocks(16)) + "]"))
	f.Add([]byte(stored(1, 0, 0, kv.Host, blocks(16)) + "\n" + stored(2, 0, 0, kv.Device, blocks(16))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, read := range []func(*intake) error{
			func(in *intake) error { return in.json(raw) },
			func(in *intake) error { return in.msgpack(raw) },
			func(in *intake) error { return in.lines(raw) },
		} {
			in := &intake{s: s, p: p, held: &held{s: s}, out: eventsBody{Skipped: map[string]int{}}}
			_ = read(in) // whatever it is, it is an answer
			if in.flush(); in.held.n != 0 {
				t.Errorf("%d bytes are still held after %q", in.held.n, raw)
			}
		}
	})
}
