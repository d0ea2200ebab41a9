package zmtp

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes that libzmq sends and takes.
const (
	greetingHex    = "ff00000000000000017f03004e554c4c" + "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
	readySubHex    = "04190552454144590b536f636b65742d5479706500000003535542"
	readyDealerHex = "04290552454144590b536f636b65742d54797065000000064445414c4552084964656e7469747900000000"
	clearedHex     = "93cb41d954fc402000009181a474797065b0416c6c426c6f636b73436c656172656400"
)

func TestVectors(t *testing.T) {
	seq := func(hex string) []byte { return unhex(t, hex) }
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"greeting", appendGreeting(nil), greetingHex},
		{"READY SUB", appendReady(nil, TypeSub), readySubHex},
		{"READY DEALER, empty identity", appendReady(nil, TypeDealer), readyDealerHex},
		{"subscribe all", appendSubscription(nil, ""), "000101"},
		{"subscribe kv@", appendSubscription(nil, "kv@"), "0004016b7640"},
		{
			"E6 as seq 7, empty topic",
			appendMessage(nil, Message{nil, seq("0000000000000007"), seq(clearedHex)}),
			"0100 01080000000000000007 0023" + clearedHex,
		},
		{"replay from 42", appendMessage(nil, Message{nil, seq("000000000000002a")}), "01000008000000000000002a"},
		{
			"end marker with topic",
			appendMessage(nil, Message{nil, nil, seq("ffffffffffffffff"), nil}),
			"010001000108ffffffffffffffff0000",
		},
		{
			"end marker without topic",
			appendMessage(nil, Message{nil, seq("ffffffffffffffff"), nil}),
			"01000108ffffffffffffffff0000",
		},
		{"PONG", appendCommand(nil, "PONG", []byte("abc")), "040804504f4e47616263"},
		{"255 bytes", appendFrame(nil, 0, make([]byte, 255))[:3], "00ff00"},
		{"256 bytes", appendFrame(nil, flagMore, make([]byte, 256))[:10], "03000000000000010000"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if want := unhex(t, test.want); !bytes.Equal(test.got, want) {
				t.Errorf("got  %x\nwant %x", test.got, want)
			}
		})
	}
}

// What we write is what we read.
func TestRoundTrip(t *testing.T) {
	messages := []Message{
		{{}},
		{[]byte("topic"), {}, bytes.Repeat([]byte{7}, 255)},
		{bytes.Repeat([]byte{8}, 256), bytes.Repeat([]byte{9}, 200_000)},
		{{}, {}, {}},
	}
	var stream []byte
	for _, m := range messages {
		stream = appendMessage(stream, m)
		if n := len(appendMessage(nil, m)); n > messageSize(m) {
			t.Errorf("%d bytes, messageSize says %d", n, messageSize(m))
		}
	}
	r := testReader(stream)
	for i, want := range messages {
		got, _, err := r.message(nil, noCommand)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		checkMessage(t, got, want)
	}
}

func TestParseReady(t *testing.T) {
	ready := func(properties string) string { return "\x05READY" + properties }
	const sub = "\x0bSocket-Type\x00\x00\x00\x03SUB"
	tests := []struct {
		name string
		body string
		want Type
		err  string
	}{
		{name: "plain", body: ready(sub), want: TypeSub},
		{name: "names in any case", body: ready("\x0bsocket-TYPE\x00\x00\x00\x03PUB"), want: TypePub},
		{name: "others before and after", body: ready("\x01X\x00\x00\x00\x00" + sub + "\x08Identity\x00\x00\x00\x02me"), want: TypeSub},
		{name: "a type we do not know", body: ready("\x0bSocket-Type\x00\x00\x00\x05DRAFT"), want: "DRAFT"},
		{name: "empty", body: "", err: "expected a command with a name, got an empty one"},
		{name: "no name", body: "\x00", err: "expected a command with a name"},
		{name: "name beyond the end", body: "\x09READY", err: "got a name of 9 bytes in a command of 6"},
		{name: "another command", body: "\x04PING\x00\x00", err: `expected the command READY, got the command "PING"`},
		{name: "refused", body: "\x05ERROR\x07go away", err: `got the error "go away"`},
		{name: "refused with a length too large", body: "\x05ERROR\xffgo", err: `got the error "go"`},
		{name: "refused without reason", body: "\x05ERROR", err: `got the error ""`},
		{name: "no socket type", body: ready(""), err: "expected READY with a Socket-Type, got none"},
		{name: "property without name", body: ready("\x00"), err: "property name of 0 bytes"},
		{name: "property cut in its name", body: ready("\x0bSock"), err: "a property name of 11 bytes where 4 are left"},
		{name: "property cut in its length", body: ready("\x01X\x00\x00"), err: "where 3 are left"},
		{name: "value beyond the end", body: ready("\x01X\xff\xff\xff\xffab"), err: `4294967295 bytes for "X" where 2 are left`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseReady([]byte(test.body))
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			checkProtocolError(t, err, test.err)
		})
	}
}

// checkProtocolError compares an error with a part of its text; "" wants none.
func checkProtocolError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	var protocol *ProtocolError
	if !errors.As(err, &protocol) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a ProtocolError with %q", err, want)
	}
}

func testReader(stream []byte) *reader {
	return &reader{br: bufio.NewReader(bytes.NewReader(stream)), limit: MaxMessage}
}

func noCommand([]byte) error { return nil }

func FuzzReady(f *testing.F) {
	f.Add([]byte("\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"))
	f.Add([]byte("\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"))
	f.Add([]byte("\x05ERROR\x04nope"))
	f.Fuzz(func(t *testing.T, body []byte) {
		socket, err := parseReady(body)
		var protocol *ProtocolError
		if err != nil && !errors.As(err, &protocol) {
			t.Errorf("%v is no ProtocolError", err)
		}
		if (err == nil) != (socket != "") {
			t.Errorf("type %q with error %v", socket, err)
		}
	})
}

// FuzzFrames reads whatever comes as messages and writes them again: frames that were
// taken have one form, apart from lengths that are written longer than they need to be.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x07\x00\x02ab"))
	f.Add([]byte("\x04\x07\x04PING\x00\x00\x00\x00"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x03abc"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x7f\xff\xff\xff"))
	f.Add([]byte("\x06\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := testReader(stream)
		var again []byte
		var m Message
		for {
			var err error
			if m, _, err = r.message(m, func(body []byte) error {
				_, _, err := splitCommand(body)
				return err
			}); err != nil {
				break
			}
			if len(m) == 0 || len(m) > MaxFrames {
				t.Fatalf("a message of %d frames", len(m))
			}
			again = appendMessage(again, m)
		}
		if len(again) > len(stream) {
			t.Fatalf("%d bytes out of %d", len(again), len(stream))
		}
		second := testReader(again)
		var rewritten []byte
		for {
			var err error
			if m, _, err = second.message(m, noCommand); err != nil {
				break
			}
			rewritten = appendMessage(rewritten, m)
		}
		if !bytes.Equal(again, rewritten) {
			t.Errorf("read again:\n%x\n%x", again, rewritten)
		}
	})
}
