package sdktest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tmc/langchaingo/llms"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/trie"
)

// patience is how long something may take that is not to be waited for at all.
const patience = 20 * time.Second

// TestSDKs calls models through each SDK, with and without hints, over HTTP/1.1 and HTTP/2:
// the hints are there, and no other byte is another.
func TestSDKs(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		u := newUpstream(t, version == "HTTP/2.0")
		base := u.Client().Transport
		client := &http.Client{Transport: hints.NewTransport(base, silent)}
		for _, sdk := range sdks {
			t.Run(version+" "+sdk.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				ctx = hints.WithRun(ctx, "run "+sdk.name)
				ctx = hints.WithLatencySensitivity(hints.EnterFunction(ctx, "planner"), 5)
				for _, c := range []*http.Client{{Transport: base}, client} {
					if text, err := sdk.ask(ctx, c, u.URL, func() {}); err != nil || text != "Hello you" {
						t.Fatalf("answer %q, error %v", text, err)
					}
				}
				got := u.take()
				if len(got) != 2 {
					t.Fatalf("%d requests came, want 2", len(got))
				}
				plain, hinted := got[0], got[1]
				const want = `,"nvext":{"agent_hints":{"latency_sensitivity":5.0,"osl":512,"priority":5,"prefix_id":"run %s-d1",` +
					`"total_requests":10,"iat":250},"cache_control":{"type":"ephemeral","ttl":"3s"}}}`
				if diff := cmp.Diff(strings.TrimSuffix(plain.body, "}")+fmt.Sprintf(want, sdk.name), hinted.body); diff != "" {
					t.Errorf("the body with hints (-want +got)\n%s", diff)
				}
				if hinted.path != sdk.path || hinted.proto != version {
					t.Errorf("came as %s %s", hinted.path, hinted.proto)
				}
			})
		}
	}
}

// TestSDKStreams checks that what the server has sent arrives before it sends more, and
// that a recorder sees all of it.
func TestSDKStreams(t *testing.T) {
	for _, sdk := range sdks {
		if !sdk.stream {
			continue
		}
		t.Run(sdk.name, func(t *testing.T) {
			u := newUpstream(t, false)
			arrived := make(chan struct{})
			u.between = func(r *http.Request) {
				select {
				case <-arrived:
				case <-r.Context().Done():
				}
			}
			var spans strings.Builder
			client := &http.Client{Transport: hints.NewTransport(nil, silent, hints.WithRecording(hints.NewRecorder(&spans)))}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			text, err := sdk.ask(hints.WithRun(ctx, "r"), client, u.URL, sync.OnceFunc(func() { close(arrived) }))
			if err != nil || text != "Hello you" {
				t.Errorf("answer %q, error %v", text, err)
			}
			var span trie.Span
			if err := json.Unmarshal([]byte(spans.String()), &span); err != nil {
				t.Fatalf("recorded %q: %v", spans.String(), err)
			}
			if span.Status != "ok" || span.CompletionTokens == nil || *span.CompletionTokens != 2 || *span.PromptTokens != 9 || span.TTFTMS == nil {
				t.Errorf("recorded %s", spans.String())
			}
		})
	}
}

// TestSDKCancel checks that the server sees who leaves a stream, recorded or not.
func TestSDKCancel(t *testing.T) {
	for _, sdk := range sdks {
		if !sdk.stream {
			continue
		}
		t.Run(sdk.name, func(t *testing.T) {
			u := newUpstream(t, false)
			left := make(chan struct{})
			u.between = func(r *http.Request) {
				select {
				case <-r.Context().Done():
					close(left)
				case <-time.After(patience):
				}
			}
			spans := make(chan string, 1)
			recorder := hints.NewRecorder(writerFunc(func(p []byte) { spans <- string(p) }))
			client := &http.Client{Transport: hints.NewTransport(nil, silent, hints.WithRecording(recorder))}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := sdk.ask(ctx, client, u.URL, cancel); err == nil {
				t.Error("the call that was left ended well")
			}
			select {
			case <-left:
			case <-time.After(patience):
				t.Fatal("the server was not told")
			}
			if line := <-spans; !strings.Contains(line, `"status":"cancelled"`) {
				t.Errorf("recorded %s", line)
			}
		})
	}
}

// TestSDKStopsListening checks a client that closes the answer while another of its
// goroutines reads it, as langchaingo does when a streaming function returns an error.
func TestSDKStopsListening(t *testing.T) {
	u := newUpstream(t, false)
	left := make(chan struct{})
	u.before = func(w http.ResponseWriter, r *http.Request) bool {
		defer close(left)
		w.Header().Set("Content-Type", "text/event-stream")
		long := strings.Replace(streams["completions"][0], "Hello", strings.Repeat("Hello ", 5000), 1)
		for r.Context().Err() == nil {
			fmt.Fprintf(w, "%s\n\n", long)
			w.(http.Flusher).Flush()
		}
		return true
	}
	spans := make(chan string, 1)
	recorder := hints.NewRecorder(writerFunc(func(p []byte) { spans <- string(p) }))
	client := &http.Client{Transport: hints.NewTransport(nil, silent, hints.WithRecording(recorder))}
	enough := errors.New("enough")
	n := 0
	_, err := langchainAsk(t.Context(), client, u.URL, llms.WithStreamingFunc(func(context.Context, []byte) error {
		if n++; n < 10 {
			return nil
		}
		return enough
	}))
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want %v", err, enough)
	}
	<-left
	if line := <-spans; !strings.Contains(line, `"status":"cancelled"`) {
		t.Errorf("recorded %s", line)
	}
}

// writerFunc writes by calling itself.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// indices is a lookup that remembers which indices it was asked for, and predicts that
// seven calls follow, so that the total says which call of its prefix one is.
type indices struct {
	mu  sync.Mutex
	got []int
}

func (x *indices) Find(_ []string, callIndex int) (*trie.Prediction, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.got = append(x.got, callIndex)
	return &trie.Prediction{RemainingCalls: trie.Metrics{SampleCount: 1, Mean: 7}}, true
}

// TestSDKRetries checks that a call that is sent again keeps its number, and that all of
// its attempts are alike.
func TestSDKRetries(t *testing.T) {
	for _, sdk := range sdks {
		if strings.HasPrefix(sdk.name, "langchaingo") {
			continue // it does not try again
		}
		t.Run(sdk.name, func(t *testing.T) {
			u := newUpstream(t, false)
			failures := []int{500, 429, 0, 503, 0}
			u.before = func(w http.ResponseWriter, r *http.Request) bool {
				status := failures[0]
				failures = failures[1:]
				if status == 0 {
					return false
				}
				w.Header().Set("Retry-After-Ms", "1")
				http.Error(w, `{"error":{"message":"later"}}`, status)
				return true
			}
			asked := new(indices)
			transport := hints.NewTransport(nil, silent, hints.WithLookup(asked), hints.WithCacheControl(hints.Ephemeral, hints.FirstOnly))
			client := &http.Client{Transport: transport}
			ctx := hints.EnterFunction(hints.WithRun(t.Context(), "r"), "planner")
			for range 2 {
				if text, err := sdk.ask(ctx, client, u.URL, func() {}); err != nil || text != "Hello you" {
					t.Fatalf("answer %q, error %v", text, err)
				}
			}
			got := u.take()
			if diff := cmp.Diff([]int{1, 1, 1, 2, 2}, asked.got); diff != "" || len(got) != 5 {
				t.Fatalf("%d requests; indices (-want +got)\n%s", len(got), diff)
			}
			for i, call := range got {
				want := got[0]
				if i >= 3 {
					want = got[3]
				}
				if call.body != want.body {
					t.Errorf("attempt %s differs\n%s\n%s", call.retry, want.body, call.body)
				}
			}
			if got[0].ext.CacheControl == nil || got[3].ext.CacheControl != nil {
				t.Errorf("cache_control is to be in the first call alone:\n%s\n%s", got[0].body, got[3].body)
			}
			if n := *got[3].ext.AgentHints.TotalRequests; n != 9 {
				t.Errorf("the second call and seven more make %d", n)
			}
			if n := transport.Stats().Retried; n != 3 {
				t.Errorf("%d counted as retried, want 3", n)
			}
		})
	}
}

// TestSDKConcurrency has many goroutines share a client: the calls of each prefix are
// numbered without a gap.
func TestSDKConcurrency(t *testing.T) {
	const goroutines, prefixes, calls = 64, 8, 4
	u := newUpstream(t, false)
	transport := hints.NewTransport(u.Client().Transport, silent, hints.WithLookup(new(indices)))
	client := &http.Client{Transport: transport}
	run := hints.WithRun(t.Context(), "r")
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			sdk := sdks[g%len(sdks)]
			ctx := hints.WithBranch(hints.EnterFunction(run, "worker"), strconv.Itoa(g/8%prefixes))
			for range calls {
				if text, err := sdk.ask(ctx, client, u.URL, func() {}); err != nil || text != "Hello you" {
					t.Errorf("%s: answer %q, error %v", sdk.name, text, err)
				}
			}
		})
	}
	wg.Wait()
	numbers := map[string][]int{}
	for _, call := range u.take() {
		h := call.ext.AgentHints
		numbers[*h.PrefixID] = append(numbers[*h.PrefixID], int(*h.TotalRequests)-7)
	}
	want := map[string][]int{}
	for p := range prefixes {
		for n := range goroutines / prefixes * calls {
			id := "r-d1/" + strconv.Itoa(p)
			want[id] = append(want[id], n+1)
		}
	}
	for _, list := range numbers {
		slices.Sort(list)
	}
	if diff := cmp.Diff(want, numbers); diff != "" {
		t.Errorf("the numbers of the calls by prefix (-want +got)\n%s", diff)
	}
	if got := transport.Stats(); got.Hinted != goroutines*calls || got.Prefixes != prefixes {
		t.Errorf("%d calls got hints, with %d prefixes", got.Hinted, got.Prefixes)
	}
}
