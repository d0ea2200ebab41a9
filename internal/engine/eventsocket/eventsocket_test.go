package eventsocket

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/zmtp"
)

// sockets is a network with sockets by address.
type sockets map[string]zmtp.Type

func (s sockets) probe(_ context.Context, addr string) (zmtp.Type, error) {
	if t, ok := s[addr]; ok {
		return t, nil
	}
	return "", errors.New("refused")
}

func TestFind(t *testing.T) {
	one := func(addr, replay, topic string) []engine.EventStream {
		return []engine.EventStream{{Address: addr, Replay: replay, Topic: topic, Counted: true}}
	}
	rows := []struct {
		name  string
		net   sockets
		q     Query
		want  []engine.EventStream
		codes string
	}{
		{"off", sockets{"h:5557": "PUB"}, Query{Options: Options{Events: "off"}}, nil, ""},
		{"as the operator says", sockets{"other:7000": "PUB"}, Query{Options: Options{Events: "other:7000", Replay: ":7100", Topic: "kv@"}, Announced: &Announced{}},
			one("other:7000", "h:7100", "kv@"), ""},
		{"where nothing listens", sockets{}, Query{Options: Options{Events: ":7000"}}, one("h:7000", "", ""), Unreachable},
		{"where something else does", sockets{"h:7000": "ROUTER"}, Query{Options: Options{Events: ":7000"}}, one("h:7000", "", ""), Unreachable},
		{"as the server says", sockets{"h:6000": "XPUB"}, Query{Announced: &Announced{On: true, Endpoint: "tcp://*:6000", Replay: "tcp://10.0.0.1:6100", Topic: "kv"}},
			one("h:6000", "10.0.0.1:6100", "kv"), ""},
		{"at any address of six", sockets{"h:6000": "PUB"}, Query{Announced: &Announced{On: true, Endpoint: "tcp://[::]:6000"}}, one("h:6000", "", ""), ""},
		{"with an operator's replay", sockets{"h:6000": "PUB"}, Query{Options: Options{Replay: "r:1", Topic: "t"}, Announced: &Announced{On: true, Endpoint: "tcp://*:6000", Replay: "tcp://*:2"}},
			one("h:6000", "r:1", "t"), ""},
		{"not at all", sockets{"h:5557": "PUB"}, Query{Announced: &Announced{}}, nil, NoEvents},
		{"vLLM at 0.0.0.0 publishes to nobody", sockets{}, Query{Announced: &Announced{On: true, Endpoint: "tcp://0.0.0.0:5557"}}, nil, Unreachable},
		{"SGLang does not", sockets{"h:5557": "PUB"}, Query{Announced: &Announced{On: true, Endpoint: "tcp://0.0.0.0:5557", ZeroBinds: true}}, one("h:5557", "", ""), ""},
		{"to one address", sockets{}, Query{Announced: &Announced{On: true, Endpoint: "tcp://10.0.0.9:5557"}}, nil, Unreachable},
		{"on its own machine", sockets{}, Query{Announced: &Announced{On: true, Endpoint: "ipc:///tmp/kv"}}, nil, Unreachable},
		{"nonsense", sockets{}, Query{Announced: &Announced{On: true, Endpoint: "\x7f"}}, nil, Unreachable},
		{"replay on its own machine", sockets{"h:5557": "PUB"}, Query{Announced: &Announced{On: true, Endpoint: "tcp://*:5557", Replay: "ipc:///x"}}, one("h:5557", "", ""), Unreachable},
		{"found", sockets{"h:5557": "PUB", "h:5558": "ROUTER"}, Query{}, one("h:5557", "h:5558", ""), Guessed},
		{"found without replay", sockets{"h:5557": "PUB", "h:5558": "PUB"}, Query{}, one("h:5557", "", ""), Guessed},
		{"not found", sockets{"h:5557": "REP"}, Query{}, nil, NoEvents},
		{"in memory", sockets{"h:5557": "PUB"}, Query{InMemory: true}, nil, NoEvents},
		{"two ranks of three found", sockets{"h:5557": "PUB", "h:5559": "PUB", "h:5562": "ROUTER"}, Query{Ranks: 3},
			[]engine.EventStream{{Rank: 0, Address: "h:5557", Counted: true}, {Rank: 2, Address: "h:5559", Replay: "h:5562", Counted: true}}, Guessed + " " + Unreachable},
		{"the second node", sockets{"h:5561": "PUB", "h:5562": "PUB"}, Query{Options: Options{Events: ":5557", Replay: ":5657"}, Ranks: 2, First: 4},
			[]engine.EventStream{{Rank: 0, First: 4, Address: "h:5561", Replay: "h:5661", Counted: true}, {Rank: 1, First: 4, Address: "h:5562", Replay: "h:5662", Counted: true}}, ""},
		{"each rank where the server says", sockets{"h:9521": "PUB", "h:9700": "XPUB"}, Query{Ranks: 2, First: 4, Announced: &Announced{On: true, Ranks: map[int]Sockets{
			5: {Endpoint: "tcp://*:9700", Replay: "tcp://*:9800", Topic: "b"}, 4: {Endpoint: "tcp://[::]:9521", Replay: "tcp://10.0.0.1:9621", Topic: "a"}}}},
			[]engine.EventStream{{Rank: 0, First: 4, Address: "h:9521", Replay: "10.0.0.1:9621", Topic: "a", Counted: true}, {Rank: 1, First: 4, Address: "h:9700", Replay: "h:9800", Topic: "b", Counted: true}}, ""},
		{"at a port that was free", sockets{"10.0.0.1:43211": "PUB"}, Query{Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://10.0.0.1:43211"}}}}, one("10.0.0.1:43211", "", ""), ""},
		{"with an operator's replay of each", sockets{"h:1": "PUB", "h:3": "PUB"}, Query{Ranks: 2, Options: Options{Replay: "r:8", Topic: "t"}, Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {"tcp://*:1", "tcp://*:7", "a"}, 1: {"tcp://*:3", "", "a"}}}},
			[]engine.EventStream{{Rank: 0, Address: "h:1", Replay: "r:8", Topic: "t", Counted: true}, {Rank: 1, Address: "h:3", Replay: "r:9", Topic: "t", Counted: true}}, ""},
		{"one rank of two tells", sockets{"h:1": "PUB"}, Query{Ranks: 2, Announced: &Announced{On: true, Ranks: map[int]Sockets{1: {Endpoint: "tcp://*:1"}}}},
			[]engine.EventStream{{Rank: 1, Address: "h:1", Counted: true}}, Unreachable},
		{"each to an address", sockets{}, Query{Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://10.0.0.9:5557"}}}}, one("10.0.0.9:5557", "", ""), Unreachable},
		{"each to 0.0.0.0", sockets{"h:1": "PUB"}, Query{Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://0.0.0.0:1"}}}}, nil, Unreachable},
		{"each on its own machine", sockets{}, Query{Ranks: 2, Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "ipc:///a"}, 1: {Endpoint: "ipc:///a_dp1"}}}}, nil, Unreachable},
		{"each with a replay on its own machine", sockets{"h:1": "PUB"}, Query{Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://*:1", Replay: "ipc:///b"}}}}, one("h:1", "", ""), Unreachable},
		// What we would find at our loopback address is another engine's.
		{"at another machine's loopback", sockets{"127.0.0.1:1": "PUB"}, Query{Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://127.0.0.1:1"}}}}, nil, Unreachable},
		{"SGLang at another machine's loopback", sockets{"127.0.0.1:1": "PUB"}, Query{Announced: &Announced{On: true, Endpoint: "tcp://127.0.0.1:1", ZeroBinds: true}}, nil, Unreachable},
		{"at our loopback", sockets{"127.0.0.1:1": "PUB"}, Query{Host: "localhost", Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://127.0.0.1:1"}}}}, one("127.0.0.1:1", "", ""), ""},
		{"at the loopback of this process", sockets{}, Query{InMemory: true, Announced: &Announced{On: true, Ranks: map[int]Sockets{0: {Endpoint: "tcp://127.0.0.1:1"}}}}, one("127.0.0.1:1", "", ""), ""},
		{"two colons are listened at", sockets{"[fd00::1]:1": "PUB"}, Query{Announced: &Announced{On: true, Endpoint: "tcp://[fd00::1]:1"}}, one("[fd00::1]:1", "", ""), ""},
		{"more ranks than ports", sockets{}, Query{Options: Options{Events: ":65535"}, Ranks: 2}, nil, Unreachable},
	}
	for _, row := range rows {
		row.q.Counted, row.q.Probe = true, row.net.probe
		if row.q.Host == "" {
			row.q.Host = "h"
		}
		got, warnings := Find(t.Context(), row.q)
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
		var codes []string
		for _, w := range warnings {
			codes = append(codes, w.Code)
			if w.Text == "" {
				t.Errorf("%s: a warning %s without words", row.name, w.Code)
			}
		}
		if got := strings.Join(codes, " "); got != row.codes {
			t.Errorf("%s: warnings %q, want %q: %v", row.name, got, row.codes, warnings)
		}
	}
}

// TestFindSlow: addresses that do not answer are tried at the same time, for a second.
func TestFindSlow(t *testing.T) {
	var deadlines sync.Map
	_, warnings := Find(t.Context(), Query{Host: "h", Ranks: 64, Probe: func(ctx context.Context, addr string) (zmtp.Type, error) {
		d, ok := ctx.Deadline()
		deadlines.Store(addr, ok && time.Until(d) <= probeTimeout)
		return "", context.DeadlineExceeded
	}})
	n := 0
	deadlines.Range(func(addr, ok any) bool {
		n++
		if !ok.(bool) {
			t.Errorf("%s was given longer", addr)
		}
		return true
	})
	if n != 128 || len(warnings) != 1 {
		t.Errorf("%d addresses were tried, %v", n, warnings)
	}
}

// TestFindReal finds a publisher of ours.
func TestFindReal(t *testing.T) {
	p, err := zmtp.ListenPub("127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	addr := p.Addr().String()
	got, warnings := Find(t.Context(), Query{Options: Options{Events: addr}, Host: "127.0.0.1"})
	if diff := cmp.Diff([]engine.EventStream{{Address: addr}}, got); diff != "" || len(warnings) != 0 {
		t.Errorf("%v (-want +got):\n%s", warnings, diff)
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{{}, {Events: "auto"}, {Events: "off"}, {Events: ":5557", Replay: "h:1"}, {Events: "[::1]:5557"}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []Options{{Events: "on"}, {Events: "tcp://h:1"}, {Events: "h:0"}, {Events: "h:65536"}, {Replay: "h"}} {
		if o.Validate() == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add("tcp://*:5557")
	f.Add("tcp://[::]:5557")
	f.Fuzz(func(t *testing.T, text string) {
		q := Query{Host: "h"}
		for _, zero := range []bool{false, true} {
			for _, named := range []bool{false, true} {
				addr, err := q.endpoint(text, zero, named)
				if err != nil {
					continue
				}
				if _, err := q.address(addr, 0); err != nil {
					t.Errorf("%q became %q: %v", text, addr, err)
				}
			}
		}
	})
}
