package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tests in this file run against libzmq, in Python processes. Each has the script of
// its peer beside it. The directory that scripts/zmq/setup.sh prints has to be in the
// environment as STATOR_ZMQ; without it they are skipped.

// prelude begins every script: bind makes a socket that listens on a port of its own, or
// on one that is given, and says which.
const prelude = `
import os, struct, sys, time, zmq
ctx = zmq.Context()
def socket(kind, **options):
    s = ctx.socket(kind)
    s.linger = 0
    for name, value in options.items():
        s.setsockopt(getattr(zmq, name), value)
    return s
def say(*words): print(*words, flush=True)
def hear(): return sys.stdin.readline().split()
def bind(s, port=0):
    s.bind("tcp://127.0.0.1:%s" % (port or "*"))
    say(s.getsockopt(zmq.LAST_ENDPOINT).decode().removeprefix("tcp://"))
`

// script is a Python process.
type script struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// python starts a script, which is killed when the test ends.
func python(t *testing.T, text string, args ...string) *script {
	t.Helper()
	dir := os.Getenv("STATOR_ZMQ")
	if dir == "" {
		t.Skip("not tested against libzmq: set STATOR_ZMQ=$(scripts/zmq/setup.sh)")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	args = append([]string{"-c", prelude + text}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "venv", "bin", "python"), args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		s.kill()
		cancel()
	})
	return s
}

// line returns what the script says next.
func (s *script) line() string {
	s.t.Helper()
	if !s.out.Scan() {
		s.t.Fatalf("the script has ended: %v", s.out.Err())
	}
	return s.out.Text()
}

// expect compares what the script says next.
func (s *script) expect(want string) {
	s.t.Helper()
	if got := s.line(); got != want {
		s.t.Errorf("the script says %q, want %q", got, want)
	}
}

// tell writes a line to the script.
func (s *script) tell(words ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, words...); err != nil {
		s.t.Fatal(err)
	}
}

// kill is kill -9.
func (s *script) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// subscribed makes a subscription of which the publisher is known to have heard: it is
// told to send "sync" until some arrives.
func subscribed(s *script, addr string, topics ...string) *Conn {
	s.t.Helper()
	topics = append(topics, "sync")
	c, err := DialSub(testContext(s.t), addr, topics...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	for end := time.Now().Add(patience); ; {
		s.tell("sync")
		c.SetDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := c.Recv(nil)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			s.t.Fatal(err)
		}
	}
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// next receives the next message that is no "sync".
func next(t *testing.T, c *Conn, m Message) Message {
	t.Helper()
	for {
		var err error
		if m, err = c.Recv(m); err != nil {
			t.Fatal(err)
		}
		if string(m[0]) != "sync" {
			return m
		}
	}
}

// pubScript publishes what it is told to.
const pubScript = `
s = socket(zmq.PUB, SNDHWM=0)
bind(s, *sys.argv[1:])
while True:
    match hear():
        case ["sync"]: s.send(b"sync")
        case ["topics", *topics]:
            for t in topics: s.send_multipart([t.encode(), b"", t.encode() * 100])
        case ["count", n, size]:
            for i in range(int(n)): s.send_multipart([b"", struct.pack(">Q", i), b"x" * int(size)])
        case []: break
`

func TestLibzmqPub(t *testing.T) {
	s := python(t, pubScript)
	addr := s.line()
	if got, err := Probe(testContext(t), addr); got != TypePub || err != nil {
		t.Errorf("Probe: %q, %v", got, err)
	}
	if _, err := DialDealer(testContext(t), addr); err == nil {
		t.Error("a DEALER was connected to a PUB")
	}
	t.Run("topics", func(t *testing.T) {
		c := subscribed(s, addr, "kv@", "b")
		s.tell("topics", "a", "kv@1", "kv", "bc", "ab")
		for _, topic := range []string{"kv@1", "bc"} {
			checkMessage(t, next(t, c, nil), Message{[]byte(topic), {}, bytes.Repeat([]byte(topic), 100)})
		}
	})
	t.Run("100000 messages", func(t *testing.T) {
		c := subscribed(s, addr, "")
		const total = 100_000
		s.tell("count", total, 200)
		var m Message
		for i := range uint64(total) {
			m = next(t, c, m)
			if got := binary.BigEndian.Uint64(m[1]); got != i || len(m[2]) != 200 {
				t.Fatalf("got %d with %d bytes, want %d", got, len(m[2]), i)
			}
		}
	})
	t.Run("megabytes", func(t *testing.T) {
		c := subscribed(s, addr, "")
		const size = 20_000_001
		s.tell("count", 5, size)
		var m Message
		for range 5 {
			m = next(t, c, m)
			if len(m[2]) != size || len(bytes.Trim(m[2], "x")) != 0 {
				t.Fatalf("%d bytes", len(m[2]))
			}
		}
	})
}

// A publisher that is killed ends the connection; one that comes back at the same
// address takes the next.
func TestLibzmqRestart(t *testing.T) {
	s := python(t, pubScript)
	addr := s.line()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	c := subscribed(s, addr, "")
	for range 3 {
		s.tell("topics", "life")
		next(t, c, nil)
		s.kill()
		for err = nil; err == nil; {
			_, err = c.Recv(nil)
		}
		var protocol *ProtocolError
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &protocol) {
			t.Errorf("Recv from a dead peer: %v", err)
		}
		if _, err := DialSub(testContext(t), addr); err == nil {
			t.Fatal("connected to a dead peer")
		}
		s = python(t, pubScript, port)
		s.expect(addr)
		c = subscribed(s, addr, "")
	}
}

// PINGs of a publisher that hears nothing else from us are answered, or it would hang up.
func TestLibzmqHeartbeat(t *testing.T) {
	t.Run("of a publisher", func(t *testing.T) {
		s := python(t, `
s = socket(zmq.PUB, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=300, HEARTBEAT_TTL=5000)
bind(s)
while True:
    match hear():
        case [word]: s.send(word.encode())
        case []: break
`)
		c := subscribed(s, s.line(), "")
		var pings int
		answer := c.pong
		c.pong = func(context []byte) error {
			if pings++; pings == 50 { // three times as long as it would wait for an answer
				s.tell("done")
			}
			return answer(context)
		}
		checkMessage(t, next(t, c, nil), Message{[]byte("done")})
	})
	// The script notes what its monitor sees. A missed PONG would end the connection.
	const monitored = `
def watch(s):
    return s.get_monitor_socket(zmq.EVENT_DISCONNECTED)
def lost(m):
    return m.poll(0) != 0
`
	t.Run("of a subscriber", func(t *testing.T) {
		p := listenPub(t, PubOptions{})
		s := python(t, monitored+`
s = socket(zmq.SUB, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=300, SUBSCRIBE=b"")
m = watch(s)
s.connect("tcp://" + sys.argv[1])
say(s.poll(1500), lost(m))
say("ready")
say(s.recv().decode(), lost(m))
`, p.Addr().String())
		s.expect("0 False")
		s.expect("ready")
		p.Publish([]byte("hello"))
		s.expect("hello False")
	})
	t.Run("of a dealer", func(t *testing.T) {
		r := listenRouter(t, func(p *Peer, m Message) { p.Send(m...) })
		s := python(t, monitored+`
s = socket(zmq.DEALER, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=300)
m = watch(s)
s.connect("tcp://" + sys.argv[1])
say(s.poll(1500), lost(m))
s.send(b"echo")
say(s.recv().decode(), lost(m))
`, r.Addr().String())
		s.expect("0 False")
		s.expect("echo False")
	})
}

func TestLibzmqSub(t *testing.T) {
	const total = 100_000
	p := listenPub(t, PubOptions{HWM: total})
	s := python(t, `
s = socket(zmq.SUB, SUBSCRIBE=b"n")
s.connect("tcp://" + sys.argv[1])
say("connected")
for i in range(int(sys.argv[2])):
    topic, seq, payload = s.recv_multipart()
    if topic != b"n" or struct.unpack(">Q", seq)[0] != i or payload != b"p" * 200:
        say("wrong at", i)
        break
say("counted")
s.setsockopt(zmq.SUBSCRIBE, b"big")
hear()
topic, payload = s.recv_multipart()
say(topic.decode(), len(payload), payload.count(b"b"))
s.setsockopt(zmq.UNSUBSCRIBE, b"n")
s.setsockopt(zmq.UNSUBSCRIBE, b"big")
hear()
`, p.Addr().String(), fmt.Sprint(total))
	s.expect("connected")
	wait(t, p, 1)
	payload := []byte(strings.Repeat("p", 200))
	for i := range uint64(total) {
		p.Publish([]byte("n"), binary.BigEndian.AppendUint64(nil, i), payload)
		p.Publish([]byte("other"))
	}
	s.expect("counted")
	if n := p.Dropped(); n != 0 {
		t.Errorf("%d dropped", n)
	}
	eventually(t, "subscribed to big", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.mu.subs[0].topics) == 2
	})
	const size = 20_000_001
	p.Publish([]byte("big"), bytes.Repeat([]byte("b"), size))
	s.tell("go")
	s.expect(fmt.Sprintf("big %d %d", size, size))
	eventually(t, "nothing is subscribed to", func() bool { return p.Subscribers() == 0 })
}

// A subscriber that does not read loses messages; one beside it gets them all.
func TestLibzmqSlowSub(t *testing.T) {
	const total = 500
	p := listenPub(t, PubOptions{HWM: 10})
	slow := python(t, `
s = socket(zmq.SUB, SUBSCRIBE=b"", RCVHWM=1, RCVBUF=4096)
s.connect("tcp://" + sys.argv[1])
hear()
last, gaps = -1, 0
while last < int(sys.argv[2]):
    seq = struct.unpack(">Q", s.recv_multipart()[0])[0]
    if seq <= last: say("back from", last, "to", seq)
    gaps += seq - last - 1
    last = seq
say(gaps)
`, p.Addr().String(), fmt.Sprint(total))
	fast := dialSub(t, p.Addr())
	wait(t, p, 2)
	payload := make([]byte, 256<<10)
	var m Message
	var err error
	for i := range uint64(total) {
		p.Publish(binary.BigEndian.AppendUint64(nil, i), payload)
		if m, err = fast.Recv(m); err != nil || binary.BigEndian.Uint64(m[0]) != i {
			t.Fatal(i, err)
		}
	}
	lost := p.Dropped()
	if lost == 0 {
		t.Fatal("nothing was dropped")
	}
	slow.tell("go")
	// The queue has room again after a while, and everything from then on arrives.
	eventually(t, "the queue is empty", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.mu.subs {
			if len(s.out.slots) > 0 {
				return false
			}
		}
		return true
	})
	p.Publish(binary.BigEndian.AppendUint64(nil, total))
	slow.expect(fmt.Sprint(lost))
}

// A replay as engines answer it, with and without a topic.
func TestLibzmqRouter(t *testing.T) {
	const total = 800 // within the default high-water mark, beyond which a ROUTER drops
	for _, topic := range []Message{nil, {{}}} {
		t.Run(fmt.Sprintf("%d frames", len(topic)+3), func(t *testing.T) {
			s := python(t, `
s = socket(zmq.ROUTER)
bind(s)
topic = [b""] * int(sys.argv[1])
while True:
    peer, empty, start = s.recv_multipart()
    for i in range(struct.unpack(">Q", start)[0], int(sys.argv[2])):
        s.send_multipart([peer, b"", *topic, struct.pack(">Q", i), b"x" * 300])
    s.send_multipart([peer, b"", *topic, b"\xff" * 8, b""])
`, fmt.Sprint(len(topic)), fmt.Sprint(total))
			addr := s.line()
			if got, err := Probe(testContext(t), addr); got != TypeRouter || err != nil {
				t.Errorf("Probe: %q, %v", got, err)
			}
			_, err := DialSub(testContext(t), addr)
			checkProtocolError(t, err, `got a socket of type "ROUTER"`)

			c, err := DialDealer(testContext(t), addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			for _, from := range []uint64{0, 790, total} {
				if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
					t.Fatal(err)
				}
				answer := func(seq uint64, payload string) Message {
					return append(append(Message{{}}, topic...), binary.BigEndian.AppendUint64(nil, seq), []byte(payload))
				}
				for i := from; i < total; i++ {
					checkMessage(t, next(t, c, nil), answer(i, strings.Repeat("x", 300)))
				}
				checkMessage(t, next(t, c, nil), answer(^uint64(0), ""))
			}
		})
	}
}

func TestLibzmqDealer(t *testing.T) {
	const total = 10_000
	r := listenRouter(t, replay(total, []byte("payload")))
	s := python(t, `
s = socket(zmq.DEALER)
s.connect("tcp://" + sys.argv[1])
for start in 0, 9000:
    s.send_multipart([b"", struct.pack(">Q", start)])
    want = start
    while True:
        empty, seq, payload = s.recv_multipart()
        if not payload: break
        if struct.unpack(">Q", seq)[0] != want: say("wrong at", want)
        want += 1
    say(want, seq.hex())
r = socket(zmq.REQ)
r.connect("tcp://" + sys.argv[1])
r.send(struct.pack(">Q", int(sys.argv[2])))
seq, payload = r.recv_multipart()
say("REQ", seq.hex(), len(payload))
`, r.Addr().String(), fmt.Sprint(total))
	for range 2 {
		s.expect("10000 ffffffffffffffff")
	}
	s.expect("REQ ffffffffffffffff 0")
}

// Publishers that connect to us, and come back by themselves.
func TestLibzmqConnectingPub(t *testing.T) {
	l, err := ListenSub("127.0.0.1:0", "kv@")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := python(t, `
s = socket(zmq.PUB, RECONNECT_IVL=10)
s.connect("tcp://" + sys.argv[1])
while True:
    s.send_multipart([b"noise", b"1"])
    s.send_multipart([b"kv@10.0.0.7@m", b"1", b"payload"])
    time.sleep(0.002)
`, l.Addr().String())
	defer s.kill()
	for range 3 {
		c, err := l.Accept(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		for range 5 {
			m, err := c.Recv(nil)
			if err != nil {
				t.Fatal(err)
			}
			checkMessage(t, m, Message{[]byte("kv@10.0.0.7@m"), []byte("1"), []byte("payload")})
		}
		c.Close()
	}
}

// Our publisher connecting to a SUB of libzmq.
func TestLibzmqBoundSub(t *testing.T) {
	s := python(t, `
s = socket(zmq.SUB, SUBSCRIBE=b"kv@")
bind(s)
for i in range(3): say(b"|".join(s.recv_multipart()).decode())
`)
	p, err := DialPub(testContext(t), s.line(), PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wait(t, p, 1)
	for i := range 3 {
		p.Publish([]byte("other"))
		p.Publish([]byte("kv@a"), fmt.Append(nil, i))
		s.expect(fmt.Sprintf("kv@a|%d", i))
	}
	s.kill()
	<-p.Done()
}

// A socket that wants more than NULL hangs up, and the error says why that may be.
func TestLibzmqSecurity(t *testing.T) {
	s := python(t, `
s = socket(zmq.PUB, PLAIN_SERVER=1)
bind(s)
hear()
`)
	_, err := DialSub(testContext(t), s.line())
	if err == nil || !strings.Contains(err.Error(), "another mechanism than NULL") {
		t.Errorf("error %v", err)
	}
}
