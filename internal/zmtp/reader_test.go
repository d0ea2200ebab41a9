package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestGreeting(t *testing.T) {
	good := appendGreeting(nil)
	with := func(offset int, replace string) []byte {
		g := bytes.Clone(good)
		copy(g[offset:], replace)
		return g
	}
	tests := []struct {
		name  string
		bytes []byte
		err   string
	}{
		{name: "3.0", bytes: good},
		{name: "3.1", bytes: with(11, "\x01")},
		{name: "padding of any value", bytes: with(1, "\x01\x02\x03\x04\x05\x06\x07\x08")},
		{name: "as server", bytes: with(32, "\x01")},
		{name: "HTTP", bytes: []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), err: `expected the greeting of ZMTP 3, got "HTTP/1.1 4"`},
		{name: "one byte of something else", bytes: []byte("-"), err: `got "-"`},
		{name: "ZMTP 1", bytes: unhex(t, "0100"), err: `got "\x01\x00"`},
		{name: "signature without its end", bytes: with(9, "\x7e"), err: `\x01~"`},
		{name: "ZMTP 2", bytes: unhex(t, "ff00000000000000017f0102"), err: "got a peer of major version 1"},
		{name: "CURVE", bytes: with(12, "CURVE"), err: `expected the mechanism NULL, which is no security, got the mechanism "CURVE"`},
		{name: "PLAIN", bytes: with(12, "PLAIN"), err: `got the mechanism "PLAIN"`},
		{name: "no mechanism", bytes: with(12, "\x00\x00\x00\x00"), err: `got the mechanism ""`},
		{name: "NULL and more", bytes: with(12, "NULL\x00X"), err: `got the mechanism "NULL\x00X"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checkProtocolError(t, testReader(test.bytes).greeting(), test.err)
		})
	}
	for n := 1; n < len(good); n++ {
		if err := testReader(good[:n]).greeting(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("first %d bytes: error %v, want %v", n, err, io.ErrUnexpectedEOF)
		}
	}
}

func TestMessageGarbage(t *testing.T) {
	long := func(flags byte, size uint64) []byte {
		return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
	}
	tests := []struct {
		name  string
		bytes []byte
		err   string
	}{
		{"flags", []byte{0x08, 0}, "expected a frame of a message or a command, got flags 0x08"},
		{"high flags", []byte{0xff, 0}, "got flags 0xff"},
		{"command with more", []byte{flagCommand | flagMore, 0}, "got flags 0x05"},
		{"a frame too large", long(0, MaxMessage+1), "a frame of 67108865 bytes after 0, where 67108864 in all are the limit"},
		{"negative length", long(0, 1<<63), "a frame of 9223372036854775808 bytes"},
		{"frames too large together", append([]byte{1, 1, 0}, long(0, MaxMessage)...), "a frame of 67108864 bytes after 1"},
		{"too many frames", bytes.Repeat([]byte{1, 0}, MaxFrames+1), "more than 8"},
		{"command too large", long(flagCommand, MaxCommand+1), "one of 8193 bytes, where 8192 are the limit"},
		{"empty command", []byte{flagCommand, 0}, "an empty one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, begun, err := testReader(test.bytes).message(nil, func(body []byte) error {
				_, _, err := splitCommand(body)
				return err
			})
			checkProtocolError(t, err, test.err)
			if !begun {
				t.Error("begun is false")
			}
		})
	}
}

// A stream may end between messages; everywhere else something is missing.
func TestMessageCut(t *testing.T) {
	stream := appendMessage(nil, Message{[]byte("t"), []byte("seq"), make([]byte, 300)})
	for n := range stream {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		_, begun, err := testReader(stream[:n]).message(nil, noCommand)
		if !errors.Is(err, want) || begun != (n > 0) {
			t.Errorf("first %d bytes: begun %v, error %v, want %v", n, begun, err, want)
		}
	}
}

func TestMessageDripFed(t *testing.T) {
	want := Message{[]byte("kv"), []byte("12345678"), bytes.Repeat([]byte("x"), 70_000)}
	stream := appendCommand(nil, "PING", []byte("\x00\x00ctx"))
	stream = append(stream, appendMessage(nil, want)...)
	r := reader{br: bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(stream)), 16), limit: MaxMessage}
	var commands []string
	got, _, err := r.message(nil, func(body []byte) error {
		commands = append(commands, string(body))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkMessage(t, got, want)
	if diff := cmp.Diff([]string{"\x04PING\x00\x00ctx"}, commands); diff != "" {
		t.Error(diff)
	}
}

// A heartbeat may come between two frames of a message.
func TestCommandWithinMessage(t *testing.T) {
	stream := appendFrame(nil, flagMore, []byte("a"))
	stream = appendCommand(stream, "PING", []byte("\x00\x00"))
	stream = appendFrame(stream, 0, []byte("b"))
	commands := 0
	got, _, err := testReader(stream).message(nil, func([]byte) error { commands++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Message{[]byte("a"), []byte("b")}, got); diff != "" || commands != 1 {
		t.Errorf("%d commands, message %s", commands, diff)
	}
}

// Announcing is not sending: what is taken for a frame follows what has come of it.
func TestAnnouncedIsNotAllocated(t *testing.T) {
	stream := binary.BigEndian.AppendUint64([]byte{flagLong}, MaxMessage)
	stream = append(stream, make([]byte, 100)...)
	r := testReader(stream)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, _, err := r.message(nil, noCommand)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if n := cap(m[0]); n > 2*bodyStep {
		t.Errorf("%d bytes for a frame of which 100 came", n)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

// Frames go where frames were, whatever the number of frames was before.
func TestMessageMemory(t *testing.T) {
	stream := appendMessage(nil, Message{[]byte("first"), []byte("second"), []byte("third")})
	stream = appendMessage(stream, Message{[]byte("one")})
	stream = appendMessage(stream, Message{[]byte("a"), []byte("b"), []byte("c")})
	r := testReader(stream)
	m, _, err := r.message(nil, noCommand)
	if err != nil {
		t.Fatal(err)
	}
	third := &m[2][0]
	if m, _, err = r.message(m, noCommand); err != nil || len(m) != 1 {
		t.Fatal(m, err)
	}
	if m, _, err = r.message(m, noCommand); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Message{[]byte("a"), []byte("b"), []byte("c")}, m); diff != "" {
		t.Error(diff)
	}
	if &m[2][0] != third {
		t.Error("the third frame has new memory")
	}
}

// The memory of large frames is not kept, wherever in a message they come.
func TestLargeFramesAreGivenBack(t *testing.T) {
	var stream []byte
	for i := range MaxFrames {
		m := make(Message, i+1)
		m[i] = make([]byte, 2*keptFrame)
		stream = appendMessage(stream, m)
	}
	r := testReader(stream)
	var m Message
	for i := range MaxFrames {
		var err error
		if m, _, err = r.message(m, noCommand); err != nil {
			t.Fatal(err)
		}
		for j, frame := range m[:cap(m)] {
			if n := cap(frame); n > keptFrame && j != i {
				t.Errorf("message %d: %d bytes are kept for frame %d", i, n, j)
			}
		}
	}
}

func TestRecvAllocates(t *testing.T) {
	var stream []byte
	for range 2000 {
		stream = appendMessage(stream, Message{[]byte("kv"), []byte("12345678"), []byte(strings.Repeat("payload", 100))})
	}
	c := newConn(nil, recvBuffer, MaxMessage)
	c.in.br.Reset(bytes.NewReader(stream))
	var m Message
	var err error
	allocs := testing.AllocsPerRun(1000, func() {
		if m, err = c.Recv(m); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a message, want none", allocs)
	}
}
