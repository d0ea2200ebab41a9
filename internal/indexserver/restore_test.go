package indexserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// fill gives an index a number of blocks in prompts of up to 200, which share
// beginnings, spread over ranks. It returns some of the prompts.
func fill(s *Server, key poolKey, ranks, total int) [][]kv.Block {
	want := wanted{key: key, blockSize: 16}
	for i := range ranks {
		want.ranks = append(want.ranks, kv.Source{Worker: kv.WorkerID(1 + i/2), Rank: uint32(i % 2)})
	}
	if err := s.ensure(want); err != nil {
		panic(err)
	}
	p, err := s.find(key)
	if err != nil {
		panic(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var prompts [][]kv.Block
	var last []kv.Block
	for n, id := 0, uint64(0); n < total; id++ {
		prompt := append([]kv.Block(nil), last[:rng.IntN(len(last)+1)/2]...)
		shared := len(prompt)
		for range min(200-shared, total-n) {
			local := kv.LocalHash(rng.Uint64())
			b := kv.Block{ID: kv.BlockID(local), Tokens: local}
			if len(prompt) > 0 {
				b.ID = kv.Chain(prompt[len(prompt)-1].ID, local)
			}
			prompt = append(prompt, b)
		}
		src := want.ranks[int(id/4)%ranks] // a few in a row, so that they share
		r, err := s.lookup(p, src)
		if err != nil {
			panic(err)
		}
		if v, _ := r.apply(time.Now(), &kv.Batch{Source: src, Seq: id, Events: []kv.Event{{Kind: kv.Stored, Blocks: prompt}}}, nil, nil); v != taken {
			panic("not taken in")
		}
		n += len(prompt) - shared
		if last = prompt; id%4 == 3 {
			last = nil
		}
		if rng.IntN(10) == 0 {
			prompts = append(prompts, prompt)
		}
	}
	return prompts
}

// answers returns what an index says about prompts.
func answers(t *testing.T, s *Server, key poolKey, prompts [][]kv.Block) [][]kvindex.Overlap {
	t.Helper()
	p, err := s.find(key)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]kvindex.Overlap, len(prompts))
	for i, prompt := range prompts {
		out[i] = p.index.Match(nil, prompt)
	}
	return out
}

// carry dumps one server over HTTP and restores another from it.
func carry(t *testing.T, from, to *rig) string {
	t.Helper()
	resp, err := http.Get(from.url + "/dump")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	back, err := http.Post(to.url+"/restore", "application/json", resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Body.Close()
	out, err := io.ReadAll(back.Body)
	if err != nil || back.StatusCode != http.StatusOK {
		t.Fatalf("status %d, error %v: %s", back.StatusCode, err, out)
	}
	return string(out)
}

func testCarry(t *testing.T, total int) {
	from, to := newRig(t, Config{}), newRig(t, Config{})
	key, other := poolKey{"org/model:7b", "default"}, poolKey{"small", "g"}
	prompts := fill(from.Server, key, 8, total)
	few := fill(from.Server, other, 1, 10)
	began := time.Now()
	out := carry(t, from, to)
	t.Logf("%d blocks in %v", total, time.Since(began))
	if !strings.Contains(out, `"models":2,"ranks":9,`) {
		t.Errorf("restored %s", out)
	}
	for key, prompts := range map[poolKey][][]kv.Block{key: prompts, other: few} {
		want := answers(t, from.Server, key, prompts)
		if len(prompts) > 0 && len(want[0]) == 0 {
			t.Fatal("nobody holds the first prompt")
		}
		if diff := cmp.Diff(want, answers(t, to.Server, key, prompts)); diff != "" {
			t.Errorf("answers for %v (-dumped +restored):\n%s", key, diff)
		}
	}
	var a, b bytes.Buffer
	if err := errors.Join(from.Dump(&a), to.Dump(&b)); err != nil {
		t.Fatal(err)
	}
	if total <= 1000 && a.Len() != b.Len() {
		t.Errorf("a dump of what was restored has %d bytes, the first had %d", b.Len(), a.Len())
	}
}

func TestDumpRestore(t *testing.T) { testCarry(t, 50_000) }

// TestMillion is the size that a service is expected to have.
func TestMillion(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("slow")
	}
	testCarry(t, 1_000_000)
}

func TestDumpForm(t *testing.T) {
	r := newRig(t, Config{})
	r.must(t, "/register", `{"instance_id":7,"model_name":"a:b","block_size":16,"dp_rank":1}`)
	r.must(t, "/register", `{"instance_id":7,"model_name":"a:b","block_size":16}`)
	r.must(t, "/register", `{"instance_id":7,"model_name":"c","block_size":4}`)
	r.must(t, "/events?model_name=a:b&epoch=3", `{"worker_id":7,"event":{"event_id":42,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":100,"tokens_hash":200}]}},"dp_rank":0}}`)
	want := `{"a:b:default":{"model_name":"a:b","routing_group":"default","block_size":16,
		"events":[{"worker_id":7,"event":{"event_id":42,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":100,"tokens_hash":200,"mm_extra_info":null}]}},"dp_rank":0}}],
		"ranks":[{"worker_id":7,"dp_rank":0,"epoch":3,"last_event_id":42,"blocks":1},{"worker_id":7,"dp_rank":1,"epoch":0,"last_event_id":null,"blocks":0}]},
		"c:default":{"model_name":"c","routing_group":"default","block_size":4,"events":[],"ranks":[{"worker_id":7,"dp_rank":0,"epoch":0,"last_event_id":null,"blocks":0}]}}`
	got := r.get(t, "/dump")
	same(t, want, got)

	// Watermarks and empty ranks come along.
	fresh := newRig(t, Config{})
	same(t, `{"models":2,"ranks":3,"blocks":1}`, fresh.must(t, "/restore", got))
	same(t, want, fresh.get(t, "/dump"))
	if got := fresh.get(t, "/workers?model_name=c"); !strings.Contains(got, `"status":"pending"`) {
		t.Errorf("a worker that nothing has come from: %s", got)
	}
	same(t, `{"applied":0,"stale":1,"missed":0,"skipped":{}}`, fresh.must(t, "/events?model_name=a:b", stored(7, 0, 42, kv.Device, blocks(16))))
	same(t, `{"applied":1,"stale":0,"missed":0,"skipped":{}}`, fresh.must(t, "/events?model_name=a:b", stored(7, 0, 43, kv.Device, blocks(16))))

	if got := r.get(t, "/dump?model_name=c"); strings.Contains(got, "a:b") || !strings.Contains(got, `"c:default"`) {
		t.Errorf("dump of one model: %s", got)
	}
	if got := newRig(t, Config{}).get(t, "/dump"); got != "{}\n" {
		t.Errorf("dump of nothing: %s", got)
	}
	if resp, _ := r.do(t, "HEAD", "/dump", "", ""); resp.StatusCode != 200 {
		t.Errorf("HEAD: status %d", resp.StatusCode)
	}
}

// A dump that others wrote: the key says it all, events of ranks come as they like,
// and nothing is known of their ids.
func TestRestoreForeign(t *testing.T) {
	r := newRig(t, Config{})
	b := blocks(48)
	next := func(worker int, parent, blk kv.Block) string {
		ev := kv.Event{Kind: kv.Stored, Parent: parent.ID, HasParent: true, Blocks: []kv.Block{blk}}
		raw, _ := kv.AppendJSON(nil, kv.Source{Worker: kv.WorkerID(worker)}, 99, &ev)
		return string(raw)
	}
	dump := `{"org/m:v1:default":{"block_size":16,"later":{"x":[1,"]"]},"events":[` + strings.Join([]string{
		stored(1, 0, 0, kv.Device, b[:1]), stored(2, 0, 1, kv.Device, b[:1]), next(1, b[0], b[1]), next(2, b[0], b[1]), next(1, b[1], b[2]),
	}, ",") + `]}}`
	same(t, `{"models":1,"ranks":2,"blocks":5}`, r.must(t, "/restore", dump))
	if got := r.must(t, "/query", tokenQuery("org/m:v1", 100)); !strings.Contains(got, `"scores":{"1":{"0":48},"2":{"0":32}}`) {
		t.Errorf("got %s", got)
	}
	same(t, `{"applied":1,"stale":0,"missed":0,"skipped":{}}`, r.must(t, "/events", stored(2, 0, 0, kv.Device, b)))
}

// An index that nobody is in is no index.
func TestRestoreNobody(t *testing.T) {
	r := newRig(t, Config{})
	same(t, `{"models":0,"ranks":0,"blocks":0}`, r.must(t, "/restore", `{"m:default":{"block_size":16,"events":[]}}`))
	if got := r.get(t, "/dump"); got != "{}\n" {
		t.Errorf("there is %s", got)
	}
	r.must(t, "/register", registered)
	same(t, `{"models":0,"ranks":0,"blocks":0}`, r.must(t, "/restore", `{"m:default":{"block_size":16,"events":[]}}`))
}

// What is in a dump replaces; what is not, stays.
func TestRestoreReplaces(t *testing.T) {
	r := newFilled(t, Config{})
	r.must(t, "/register", `{"instance_id":2,"model_name":"m","block_size":16}`)
	r.must(t, "/events", stored(2, 0, 0, kv.Device, blocks(16)))
	r.must(t, "/restore", `{"m:default":{"block_size":16,"events":[`+stored(1, 0, 0, kv.Device, blocks(16))+`]}}`)
	same(t, `{"scores":{"1":{"0":16,"1":16},"2":{"0":16}},"frequencies":[],"instances":{
		"1":{"longest_matched":16,"gpu":16,"dp":{"0":16,"1":16},"cpu":16,"disk":16},
		"2":{"longest_matched":16,"gpu":16,"dp":{"0":16},"cpu":16,"disk":16}}}`, r.must(t, "/query", tokenQuery("m", 100)))
}

func TestRestoreErrors(t *testing.T) {
	good := stored(1, 0, 0, kv.Device, blocks(16))
	const double = `{"worker_id":1,"event":{"event_id":1,"data":{"stored":{"blocks":[{"block_hash":1,"tokens_hash":1},{"block_hash":1,"tokens_hash":2}]}}}}`
	for _, row := range []struct {
		name, body string
		status     int
		field      string
		want       string
	}{
		{"nothing", ``, 400, ``, "EOF"},
		{"a word", `true`, 400, ``, "byte 0"},
		{"an array", `[]`, 400, ``, "byte 0"},
		{"cut off", `{"m:default":{"block_size":16,"events":[` + good + `,`, 400, `"m:default".events[1]`, "EOF"},
		{"cut off in an event", `{"m:default":{"block_size":16,"events":[` + good[:30], 400, `"m:default".events[0]`, "EOF"},
		{"text behind it", `{} {}`, 400, ``, "byte 3"},
		{"no comma", `{"m:default":{"block_size":16,"events":[` + good + good + `]}}`, 400, `"m:default".events[1]`, "byte"},
		{"trailing comma", `{"m:default":{"block_size":16,},}`, 400, `"m:default"`, "byte 30"},
		{"key without quotes", `{m:1}`, 400, ``, "a key"},
		{"no colon", `{"m" {}}`, 400, ``, "byte 5"},
		{"no block size", `{"m:default":{"events":[]}}`, 400, `"m:default".block_size`, "block_size"},
		{"bad block size", `{"m:default":{"block_size":"16"}}`, 400, `"m:default".block_size`, "block_size"},
		{"another block size", `{"other:default":{"block_size":8,"events":[` + good + `]},"m:default":{"block_size":32,"events":[` + good + `]}}`, 409, `block_size`, "16 tokens"},
		{"no model", `{":default":{"block_size":16}}`, 400, `":default".model_name`, "model_name"},
		{"bad name", `{"m:default":{"model_name":7,"block_size":16}}`, 400, `"m:default".model_name`, "model_name"},
		{"group with a colon", `{"m:default":{"routing_group":"a:b","block_size":16}}`, 400, `"m:default".routing_group`, "routing_group"},
		{"half a character", `{"\ud800:default":{"block_size":16}}`, 400, ``, "a key"},
		{"bytes that are no character", "{\"\xff:default\":{\"block_size\":16}}", 400, ``, "a key"},
		{"half a character in a name", `{"m:default":{"block_size":16,"model_name":"\ud800"}}`, 400, `"m:default".model_name`, "Unicode"},
		{"mark that is none", `{"m:default":{"block_size":16,"ranks":[7]}}`, 400, `"m:default".ranks[0]`, "an object"},
		{"twice", `{"m:default":{"block_size":16},"m:default":{"block_size":16}}`, 400, `"m:default"`, "once"},
		{"bad event", `{"m:default":{"block_size":16,"events":[` + good + `,{"worker_id":0}]}}`, 400, `"m:default".events[1]`, "events[1]"},
		{"event that is none", `{"m:default":{"block_size":16,"events":[7]}}`, 400, `"m:default".events[0]`, "events[0]"},
		{"event that contradicts itself", `{"m:default":{"block_size":16,"events":[` + double + `]}}`, 400, `"m:default".events`, "contradicts"},
		{"bad mark", `{"m:default":{"block_size":16,"ranks":[{"worker_id":1,"last_event_id":-1}]}}`, 400, `"m:default".ranks[0].last_event_id`, "last_event_id"},
		{"mark of nobody", `{"m:default":{"block_size":16,"ranks":[{"worker_id":1},{}]}}`, 400, `"m:default".ranks[1].worker_id`, "worker_id"},
		{"bad word", `{"m:default":{"block_size":16,"other":nul}}`, 400, `"m:default"."other"`, "other"},
		{"ranks without end", `{"m:default":{"block_size":16,"events":[` + strings.Join([]string{stored(1, 0, 0, 0, nil), stored(1, 1, 0, 0, nil), stored(1, 2, 0, 0, nil), stored(1, 3, 0, 0, nil), stored(1, 4, 0, 0, nil)}, ",") + `]}}`, 400, `"m:default".events[4]`, "at most 4 ranks"},
		{"models without end", `{` + strings.Repeat(`"%:default":{"block_size":16},`, maxPools) + `"m:default":{"block_size":16}}`, 400, `"m:default"`, "at most 1024"},
		{"too many ranks", `{"m:default":{"block_size":16,"ranks":[{"worker_id":1},{"worker_id":2},{"worker_id":3},{"worker_id":4}]}}`, 503, ``, "limit"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newFilled(t, Config{MaxRanks: 4})
			for i := 0; strings.Contains(row.body, "%"); i++ {
				row.body = strings.Replace(row.body, "%", strconv.Itoa(i), 1)
			}
			before := r.get(t, "/dump")
			status, out := r.post(t, "/restore", row.body)
			var e errorBody
			if err := json.Unmarshal([]byte(out), &e); err != nil {
				t.Fatal(err)
			}
			if status != row.status || e.Error.Field != row.field || !strings.Contains(e.Error.Message, row.want) {
				t.Errorf("status %d, field %s: %s; want %d, field %s, and %q", status, e.Error.Field, e.Error.Message, row.status, row.field, row.want)
			}
			if diff := cmp.Diff(sortedLines(before), sortedLines(r.get(t, "/dump"))); diff != "" {
				t.Errorf("something has changed (-before +after):\n%s", diff)
			}
		})
	}
}

// sortedLines returns the lines of a dump, whose events beyond the device's memory
// have no order.
func sortedLines(s string) []string {
	return slices.Sorted(strings.SplitSeq(strings.ReplaceAll(s, ",\n", "\n"), "\n"))
}

// However a dump is cut into reads, it is the same dump.
func TestRestoreAnyReads(t *testing.T) {
	from := New(Config{})
	key := poolKey{`a"\:ü`, "g"}
	prompts := fill(from, key, 3, 300)
	var dump bytes.Buffer
	if err := from.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{
		"bytes":  iotest.OneByteReader(bytes.NewReader(dump.Bytes())),
		"halves": iotest.HalfReader(bytes.NewReader(dump.Bytes())),
		"eof":    iotest.DataErrReader(bytes.NewReader(dump.Bytes())),
	} {
		to := New(Config{})
		if _, err := to.Restore(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(answers(t, from, key, prompts), answers(t, to, key, prompts)); diff != "" {
			t.Errorf("%s (-dumped +restored):\n%s", name, diff)
		}
	}
	broken := errors.New("broken")
	_, err := New(Config{}).Restore(io.MultiReader(bytes.NewReader(dump.Bytes()[:1000]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want that of the reader", err)
	}
}

func TestOpenDump(t *testing.T) {
	r := newFilled(t, Config{})
	for _, url := range []string{r.url, r.url + "/", r.url + "/dump", r.url + "/dump?model_name=m"} {
		d, err := OpenDump(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		fresh := New(Config{})
		got, err := fresh.Restore(d)
		if err := errors.Join(err, d.Close()); err != nil || got != (Restored{Models: 1, Ranks: 2, Blocks: 6}) {
			t.Errorf("%s: restored %+v, error %v", url, got, err)
		}
	}
	if _, err := OpenDump(t.Context(), r.url+"/nope"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("no dump there: error %v", err)
	}
	if _, err := OpenDump(t.Context(), "http://127.0.0.1:1"); err == nil {
		t.Error("nobody there: no error")
	}
}

// A server that does not answer, or stops in the middle, is given up.
// TestOpenDumpBusy: a server with too much to do is asked again.
func TestOpenDumpBusy(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "{}")
	}))
	defer srv.Close()
	d, err := OpenDump(t.Context(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if body, err := io.ReadAll(d); string(body) != "{}" || err != nil || asked != 3 {
		t.Errorf("%q and %v after %d questions", body, err, asked)
	}
}

func TestOpenDumpSilence(t *testing.T) {
	gone := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/dump", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			fmt.Fprint(w, `{"m:default":`)
			http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer close(gone)
	ctx, cancel := context.WithCancel(t.Context())
	d, err := OpenDump(ctx, srv.URL+"/dump?begin")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cancel()
	if _, err := New(Config{}).Restore(d); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
	if _, err := OpenDump(ctx, srv.URL); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: error %v", err)
	}
}

// The times are tested without a socket, which virtual time does not know.
func TestRemoteDumpStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := context.AfterFunc(ctx, func() { w.CloseWithError(errors.New("closed")) })
		defer stop()
		d := &remoteDump{body: r, ctx: ctx, cancel: cancel, from: "peer", alarm: time.AfterFunc(firstByte, func() {})}
		defer d.Close()
		go func() {
			w.Write([]byte("a"))
			time.Sleep(stall - time.Second)
			w.Write([]byte("b"))
		}()
		b := make([]byte, 1)
		for range 2 {
			if _, err := d.Read(b); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * stall) // the reader has all the time it wants
		}
		began := time.Now()
		if _, err := d.Read(b); err == nil || !strings.Contains(err.Error(), "nothing came for 30s") || time.Since(began) != stall {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

func FuzzRestore(f *testing.F) {
	s := New(Config{})
	fill(s, poolKey{"m", "default"}, 2, 5)
	var dump bytes.Buffer
	if err := s.Dump(&dump); err != nil {
		f.Fatal(err)
	}
	f.Add(dump.Bytes())
	f.Add([]byte(`{"a:b":{"block_size":1,"events":[],"ranks":[{"worker_id":1,"last_event_id":2}],"x":"\"}"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := s.stage(bytes.NewReader(raw)); err != nil {
			return // a server of its own is for what can be read
		}
		s := New(Config{})
		got, err := s.Restore(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%q could be read and not restored: %v", raw, err)
		}
		var again bytes.Buffer
		if err := s.Dump(&again); err != nil {
			t.Fatal(err)
		}
		back, err := New(Config{}).Restore(&again)
		if err != nil {
			t.Fatalf("what was restored from %q cannot be restored again: %v\n%s", raw, err, &again)
		}
		if back.Ranks != got.Ranks {
			t.Errorf("%d ranks, then %d", got.Ranks, back.Ranks)
		}
	})
}
