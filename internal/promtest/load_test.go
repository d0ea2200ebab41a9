package promtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// simModel is what simulated engines serve.
const simModel = "stator-sim"

// load is traffic as agents make it: conversations of a few turns, several to each system
// prompt, streamed and whole, some with tools and hints, with a mistake and a change of mind
// now and then. It goes on until it is stopped or the test ends.
type load struct {
	url    string
	model  string
	client *http.Client
	stop   func() // waits until nothing is under way
	served atomic.Int64
	failed atomic.Pointer[error]
	// tolerant is whether answers may be missing or refusals.
	tolerant atomic.Bool
}

// startLoad has as many agents as given talk to a model of a server.
func startLoad(t *testing.T, url, model string, agents int) *load {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: agents}
	l := &load{url: url, model: model, client: &http.Client{Transport: transport}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range agents {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; ctx.Err() == nil && l.failed.Load() == nil; n++ {
				err := l.converse(ctx, rng, fmt.Sprintf("run%d-%d", i, n))
				switch {
				case err == nil, ctx.Err() != nil:
				case !l.tolerant.Load():
					l.failed.CompareAndSwap(nil, &err)
				default:
					<-time.After(often) // nothing is lost by leaving servers alone a little
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		transport.CloseIdleConnections()
		if err := l.failed.Load(); err != nil {
			t.Errorf("load on %s: %v", url, *err)
		}
	})
	t.Cleanup(l.stop)
	return l
}

// wait waits until so many requests of a load have been answered.
func (l *load) wait(t *testing.T, requests int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests are answered", requests), func() string {
		if err := l.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		if n := l.served.Load(); n < requests {
			return fmt.Sprintf("%d are", n)
		}
		return ""
	})
}

// converse is one conversation.
func (l *load) converse(ctx context.Context, rng *rand.Rand, id string) error {
	application := rng.IntN(4)
	history := []any{message("system", strings.Repeat(fmt.Sprintf("Rule of application %d: be brief. ", application), 30))}
	turns := 2 + rng.IntN(3)
	for turn := range turns {
		history = append(history, message("user", words(rng, 40)))
		request := map[string]any{"model": l.model, "messages": history, "max_tokens": 6 + rng.IntN(10), "stream": rng.IntN(3) > 0}
		if application%2 == 0 {
			request["tools"] = tools
		}
		header := make(http.Header)
		switch rng.IntN(3) {
		case 0:
			request["nvext"] = map[string]any{"agent_hints": map[string]any{"prefix_id": id, "total_requests": turns - turn, "osl": 16, "iat": 50}}
		case 1:
			header.Set("x-prefix-id", id)
			header.Set("x-prefix-total-requests", fmt.Sprint(turns-turn))
		}
		var err error
		switch rng.IntN(30) {
		case 0:
			request["model"] = "nobody-has-this"
			_, err = l.send(ctx, request, header, http.StatusNotFound)
		case 1:
			request["messages"] = "no list"
			_, err = l.send(ctx, request, header, http.StatusBadRequest)
		case 2:
			err = l.abandon(ctx, request, header)
		default:
			var said string
			said, err = l.send(ctx, request, header, http.StatusOK)
			history = append(history, message("assistant", said))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func message(role, content string) any { return map[string]string{"role": role, "content": content} }

// tools are what an agent has at hand.
var tools = json.RawMessage(`[{"type":"function","function":{"name":"search","description":"Looks something up.","parameters":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}}]`)

// words returns n of them at random.
func words(rng *rand.Rand, n int) string {
	list := strings.Fields("the cache of a server holds what was said before and every turn of a talk begins with all that came so far")
	var b strings.Builder
	for range n {
		b.WriteString(list[rng.IntN(len(list))] + " ")
	}
	return b.String()
}

// send makes a request, reads all of the answer and returns its text.
func (l *load) send(ctx context.Context, request any, header http.Header, want int) (string, error) {
	resp, err := l.open(ctx, request, header)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != want {
		return "", fmt.Errorf("expected status %d, got %d: %s", want, resp.StatusCode, body)
	}
	l.served.Add(1)
	if want != http.StatusOK {
		return "", nil
	}
	return text(body)
}

// abandon makes a request and goes away when the answer begins.
func (l *load) abandon(ctx context.Context, request map[string]any, header http.Header) error {
	request["stream"], request["max_tokens"] = true, 200
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := l.open(ctx, request, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = bufio.NewReader(resp.Body).ReadString('\n')
	return err
}

func (l *load) open(ctx context.Context, request any, header http.Header) (*http.Response, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	return l.client.Do(req)
}

// text returns what an answer says, streamed or whole.
func text(body []byte) (string, error) {
	type choice struct{ Message, Delta struct{ Content string } }
	var b strings.Builder
	add := func(doc []byte) error {
		var answer struct{ Choices []choice }
		if err := json.Unmarshal(doc, &answer); err != nil {
			return fmt.Errorf("%w in %s", err, doc)
		}
		for _, c := range answer.Choices {
			b.WriteString(c.Message.Content + c.Delta.Content)
		}
		return nil
	}
	if !bytes.HasPrefix(body, []byte("data:")) {
		err := add(body)
		return b.String(), err
	}
	for line := range bytes.Lines(body) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok || bytes.Equal(data, []byte("[DONE]")) {
			continue
		}
		if err := add(data); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}
