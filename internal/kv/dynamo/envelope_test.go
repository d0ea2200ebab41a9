package dynamo

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"
)

// storedHex is a stored event of worker 7, number 42, in MessagePack.
const storedHex = "82a9776f726b65725f696407a56576656e7483a86576656e745f69642aa46461746181a673746f72656482ab706172656e745f68617368c0a6626c6f636b739183aa626c6f636b5f6861736864ab746f6b656e735f68617368ccc8ad6d6d5f65787472615f696e666fc0a764705f72616e6b00"

// envelopeHex is the envelope of it, up to the payload.
const envelopeHex = "85ac7075626c69736865725f696407a873657175656e636500ac7075626c69736865645f6174cf0000018bcfe56800a5746f706963a96b762d6576656e7473a77061796c6f6164c473"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testEnvelope(t testing.TB) Envelope {
	return Envelope{Publisher: 7, PublishedMillis: 1700000000000, Topic: EventTopic, Payload: unhex(t, storedHex)}
}

func TestEnvelope(t *testing.T) {
	e := testEnvelope(t)
	b := e.AppendMsg([]byte("before"))[len("before"):]
	t.Run("publisher 7, sequence 0, published_at 1700000000000", func(t *testing.T) {
		if diff := cmp.Diff(envelopeHex+storedHex, hex.EncodeToString(b)); diff != "" {
			t.Errorf("bytes (-want +got):\n%s", diff)
		}
		if len(b) != 188 {
			t.Errorf("%d bytes, want 188", len(b))
		}
		got, err := ParseEnvelope(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	})
	t.Run("ZMQ frame header", func(t *testing.T) {
		m := Message{Topic: EventTopic, Publisher: 7, Sequence: 258, Envelope: b}
		frames, err := m.Frames()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range frames {
			got = append(got, hex.EncodeToString(f))
		}
		want := []string{hex.EncodeToString([]byte("kv-events")), "0000000000000007", "0000000000000102", "01000000bc" + envelopeHex + storedHex}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
		back, err := ParseMessage(frames)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	})
}

// field returns an envelope's field by number, key first where named is set.
func field(b []byte, e *Envelope, i int, named bool) []byte {
	if named {
		b = msgp.AppendString(b, envelopeFields[i])
	}
	switch i {
	case 0:
		return msgp.AppendUint64(b, e.Publisher)
	case 1:
		return msgp.AppendUint64(b, e.Sequence)
	case 2:
		return msgp.AppendUint64(b, e.PublishedMillis)
	case 3:
		return msgp.AppendString(b, e.Topic)
	default:
		return msgp.AppendBytes(b, e.Payload)
	}
}

func TestParseEnvelope(t *testing.T) {
	e := Envelope{Publisher: 1<<64 - 1, Sequence: 9, PublishedMillis: 3, Topic: "kv-events", Payload: []byte{1, 2}}
	all := func(b []byte, named bool, order ...int) []byte {
		for _, i := range order {
			b = field(b, &e, i, named)
		}
		return b
	}
	array := all([]byte{0x95}, false, 0, 1, 2, 3, 4)
	negative := append([]byte{0x95, 0xff}, array[10:]...) // in place of a publisher of nine bytes
	for _, tc := range []struct {
		name string
		wire []byte
		err  string // part of it; empty: the envelope above
	}{
		{"map", all([]byte{0x85}, true, 0, 1, 2, 3, 4), ""},
		{"map in another order", all([]byte{0x85}, true, 4, 3, 2, 1, 0), ""},
		{"map with an unknown field", all(append([]byte{0x86}, "\xa3new\x92\x01\x02"...), true, 0, 1, 2, 3, 4), ""},
		{"array", array, ""},
		{"array with a further element", append(all([]byte{0x96}, false, 0, 1, 2, 3, 4), "\x81\xa1a\xc0"...), ""},
		{"map without topic", all([]byte{0x84}, true, 0, 1, 2, 4), "topic: expected a value"},
		{"array without payload", all([]byte{0x94}, false, 0, 1, 2, 3), "at least 5 elements, got 4"},
		{"negative publisher", negative, "publisher_id: "},
		{"payload that is text", append(all([]byte{0x95}, false, 0, 1, 2, 3), 0xa1, 'x'), "payload: "},
		{"bytes after it", append(all([]byte{0x95}, false, 0, 1, 2, 3, 4), 0), "bytes after its end"},
		{"cut short", array[:len(array)-1], "payload: "},
		{"a payload of 4 GiB that is not there", append(all([]byte{0x95}, false, 0, 1, 2, 3), 0xc6, 0xff, 0xff, 0xff, 0xff), "payload: "},
		{"2^32-1 fields that are not there", []byte{0xdf, 0xff, 0xff, 0xff, 0xff}, "key: "},
		{"2^32-1 elements that are not there", []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, "publisher_id: "},
		{"unknown field nested without end", append([]byte("\x81\xa1a"), strings.Repeat("\x91", 1<<20)...), "unknown field: "},
		{"number", []byte{1}, "event envelope: "},
		{"nothing", nil, "event envelope: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseEnvelope(tc.wire)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(e, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseMessageErrors(t *testing.T) {
	id := make([]byte, 8)
	for _, tc := range []struct {
		name   string
		frames [][]byte
		err    string
	}{
		{"three frames", [][]byte{nil, id, id}, "expected 4 frames, got 3"},
		{"short publisher", [][]byte{nil, id[1:], id, {1, 0, 0, 0, 0}}, "publisher: expected 8 bytes, got 7"},
		{"long sequence", [][]byte{nil, id, append(id, 0), {1, 0, 0, 0, 0}}, "sequence: expected 8 bytes, got 9"},
		{"no header", [][]byte{nil, id, id, {1, 0, 0, 0}}, "expected a header of 5 bytes, got 4"},
		{"another version", [][]byte{nil, id, id, {2, 0, 0, 0, 0}}, "expected version 1, got 2"},
		{"less than announced", [][]byte{nil, id, id, {1, 0, 0, 0, 2, 9}}, "expected 2 bytes as its header says, got 1"},
		{"more than announced", [][]byte{nil, id, id, {1, 0, 0, 0, 0, 9}}, "expected 0 bytes as its header says, got 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ParseMessage(tc.frames); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got error %v, want one with %q", err, tc.err)
			}
		})
	}
}

// What can be read is written in a form that reads the same.
func FuzzParseEnvelope(f *testing.F) {
	e := testEnvelope(f)
	f.Add(e.AppendMsg(nil))
	f.Add([]byte("\x95\x01\x02\x03\xa1t\xc4\x01p"))
	f.Add([]byte("\x96\x01\x02\x03\xa1t\xc4\x01p\x91\xc0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEnvelope(b)
		if err != nil {
			return
		}
		back, err := ParseEnvelope(e.AppendMsg(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A frame that can be read is the one that would be sent.
func FuzzParseMessage(f *testing.F) {
	f.Add("kv-events", []byte("\x00\x00\x00\x00\x00\x00\x00\x07"), []byte("\x00\x00\x00\x00\x00\x00\x00\x01"), []byte("\x01\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, topic string, publisher, sequence, frame []byte) {
		frames := [][]byte{[]byte(topic), publisher, sequence, frame}
		m, err := ParseMessage(frames)
		if err != nil {
			return
		}
		back, err := m.Frames()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(frames, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
