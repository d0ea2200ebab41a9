package kv

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

const maxU64 = 1<<64 - 1

// wireRows are events with their JSON form and, where given, their MessagePack
// form.
var wireRows = []struct {
	name  string
	batch Batch
	json  string
	hex   string
}{
	{"stored",
		Batch{Source: Source{Worker: 7}, Seq: 42, Events: []Event{
			{Kind: Stored, Blocks: []Block{{ID: 100, Tokens: 200}}}}},
		`{"worker_id":7,"event":{"event_id":42,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":100,"tokens_hash":200,"mm_extra_info":null}]}},"dp_rank":0}}`,
		"82a9776f726b65725f696407a56576656e7483a86576656e745f69642aa46461746181a673746f72656482ab706172656e745f68617368c0a6626c6f636b739183aa626c6f636b5f6861736864ab746f6b656e735f68617368ccc8ad6d6d5f65787472615f696e666fc0a764705f72616e6b00"},
	{"removed",
		Batch{Source: Source{Worker: 7}, Seq: 43, Events: []Event{{Kind: Removed, Blocks: []Block{{ID: 100}}}}},
		`{"worker_id":7,"event":{"event_id":43,"data":{"removed":{"block_hashes":[100]}},"dp_rank":0}}`, ""},
	{"cleared",
		Batch{Source: Source{Worker: 7, Rank: 1}, Seq: 43, Events: []Event{{Kind: Cleared}}},
		`{"worker_id":7,"event":{"event_id":43,"data":"cleared","dp_rank":1}}`,
		"82a9776f726b65725f696407a56576656e7483a86576656e745f69642ba464617461a7636c6561726564a764705f72616e6b01"},
	{"cleared, id 44",
		Batch{Source: Source{Worker: 7, Rank: 1}, Seq: 44, Events: []Event{{Kind: Cleared}}},
		`{"worker_id":7,"event":{"event_id":44,"data":"cleared","dp_rank":1}}`, ""},
	{"with parent, full range of uint64",
		Batch{Source: Source{Worker: maxU64, Rank: 1<<32 - 1}, Seq: maxU64, Events: []Event{
			{Kind: Stored, Parent: maxU64 - 1, HasParent: true, Blocks: []Block{{ID: maxU64 - 2, Tokens: maxU64 - 3}}}}},
		`{"worker_id":18446744073709551615,"event":{"event_id":18446744073709551615,"data":{"stored":{"parent_hash":18446744073709551614,"blocks":[{"block_hash":18446744073709551613,"tokens_hash":18446744073709551612,"mm_extra_info":null}]}},"dp_rank":4294967295}}`, ""},
	{"counted and bare, in host memory",
		Batch{Source: Source{Worker: 7}, Seq: 1, Events: []Event{
			{Kind: Stored, Tier: Host, Counted: true, Bare: true, Blocks: []Block{{ID: 1}, {ID: 2}}}}},
		`{"worker_id":7,"storage_tier":"host_pinned","event":{"event_id":1,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":1,"tokens_hash":0,"mm_extra_info":null},{"block_hash":2,"tokens_hash":0,"mm_extra_info":null}],"counted":true,"bare":true}},"dp_rank":0}}`, ""},
	{"part of a dump, behind a sequence hash",
		Batch{Source: Source{Worker: 7}, Seq: 1, Events: []Event{
			{Kind: Stored, Parent: 3, HasParent: true, ParentSeq: maxU64, HasParentSeq: true, Counted: true, Blocks: []Block{{1, 2}}}}},
		`{"worker_id":7,"event":{"event_id":1,"data":{"stored":{"parent_hash":3,"parent_sequence_hash":18446744073709551615,"blocks":[{"block_hash":1,"tokens_hash":2,"mm_extra_info":null}],"counted":true}},"dp_rank":0}}`, ""},
	{"counted removal from disk",
		Batch{Source: Source{Worker: 7}, Seq: 1, Events: []Event{
			{Kind: Removed, Tier: Disk, Counted: true, Blocks: []Block{{ID: 1}, {ID: 2}}}}},
		`{"worker_id":7,"storage_tier":"disk","event":{"event_id":1,"data":{"removed":{"block_hashes":[1,2],"counted":true}},"dp_rank":0}}`, ""},
	{"no blocks",
		Batch{Source: Source{Worker: 7}, Events: []Event{{Kind: Removed, Tier: External, Blocks: []Block{}}}},
		`{"worker_id":7,"storage_tier":"external","event":{"event_id":0,"data":{"removed":{"block_hashes":[]}},"dp_rank":0}}`, ""},
}

func TestRouterEventJSON(t *testing.T) {
	for _, row := range wireRows {
		t.Run(row.name, func(t *testing.T) {
			got, err := AppendJSON([]byte("x"), row.batch.Source, row.batch.Seq, &row.batch.Events[0])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("x"+row.json, string(got)); diff != "" {
				t.Errorf("wire form (-want +got):\n%s", diff)
			}
			back, err := ParseJSON([]byte(row.json))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&row.batch, back); diff != "" {
				t.Errorf("round trip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRouterEventMsgpack(t *testing.T) {
	for _, row := range wireRows {
		t.Run(row.name, func(t *testing.T) {
			got, err := AppendMsgpack(nil, row.batch.Source, row.batch.Seq, &row.batch.Events[0])
			if err != nil {
				t.Fatal(err)
			}
			if row.hex != "" && row.hex != hex.EncodeToString(got) {
				t.Errorf("wire form:\n got %x\nwant %s", got, row.hex)
			}
			back, err := ParseMsgpack(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&row.batch, back); diff != "" {
				t.Errorf("round trip (-want +got):\n%s", diff)
			}
			for n := range got {
				if b, err := ParseMsgpack(got[:n]); err == nil {
					t.Fatalf("the first %d of %d bytes parse as %+v", n, len(got), b)
				}
			}
		})
	}
}

func TestAppendRefuses(t *testing.T) {
	rows := []struct {
		src  Source
		ev   Event
		want string
	}{
		{Source{}, Event{Kind: Cleared}, "worker_id"},
		{Source{Worker: 1}, Event{}, "kind 0"},
		{Source{Worker: 1}, Event{Kind: 4}, "kind 4"},
		{Source{Worker: 1}, Event{Kind: Cleared, Tier: 4}, "tier 4"},
	}
	for _, row := range rows {
		for name, appendTo := range map[string]func([]byte, Source, uint64, *Event) ([]byte, error){"AppendJSON": AppendJSON, "AppendMsgpack": AppendMsgpack} {
			got, err := appendTo([]byte("x"), row.src, 1, &row.ev)
			if err == nil || !strings.Contains(err.Error(), row.want) || string(got) != "x" {
				t.Errorf("%s(%+v, %+v) = %q, %v; want an error with %q", name, row.src, row.ev, got, err, row.want)
			}
		}
	}
}

func TestParseJSONTolerance(t *testing.T) {
	rows := []struct {
		name, wire string
		want       Event
	}{
		{"members missing",
			`{"worker_id":7,"event":{"event_id":1,"data":{"stored":{"blocks":[{"block_hash":5,"tokens_hash":6}]}}}}`,
			Event{Kind: Stored, Blocks: []Block{{5, 6}}}},
		{"members unknown, space, escapes, another order",
			` {"state_source":{"a":[1,-2.5e3,true,false,null,"\u00e9\""]},"event" :
			 {"data":{"stored":{"start_position":0,"blocks":[{"mm_extra_info":{"mm_objects":[{"mm_hash":9,"offsets":[[0,4]]}]},
			 "tokens_hash":6,"block\u005fhash":5}],"parent_hash":4}},"dp_rank":0,"event_id":1},
			 "residency_domain":"worker","storage_tier":"disk","worker_id":7}` + "\n",
			Event{Kind: Stored, Tier: Disk, Parent: 4, HasParent: true, Blocks: []Block{{5, 6}}}},
		{"hashes as signed integers",
			`{"worker_id":7,"event":{"event_id":1,"data":{"stored":{"parent_hash":-1,"blocks":[{"block_hash":-3488128144981237669,"tokens_hash":-9223372036854775808}]}}}}`,
			Event{Kind: Stored, Parent: maxU64, HasParent: true, Blocks: []Block{{0xcf97adeedb59e05b, 1 << 63}}}},
		{"residency of a shared cache",
			`{"worker_id":7,"residency_domain":"cache_owner","event":{"event_id":1,"data":{"removed":{"block_hashes":[-1,0]}}}}`,
			Event{Kind: Removed, Blocks: []Block{{ID: maxU64}, {}}}},
		{"flags that are false",
			`{"worker_id":7,"event":{"event_id":1,"data":{"removed":{"counted":false,"bare":false,"block_hashes":[1]}}}}`,
			Event{Kind: Removed, Blocks: []Block{{ID: 1}}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := ParseJSON([]byte(row.wire))
			if err != nil {
				t.Fatal(err)
			}
			want := &Batch{Source: Source{Worker: 7}, Seq: 1, Events: []Event{row.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseJSONErrors(t *testing.T) {
	event := func(data string) string { return `{"worker_id":1,"event":{"event_id":9,"data":` + data + `}}` }
	rows := []struct{ wire, want string }{
		{``, "expected an object, got the end"},
		{`{`, "name"},
		{`{"worker_id":1,}`, "name"},
		{`[]`, "expected an object"},
		{`{"event":{"event_id":1,"data":"cleared"}}`, "worker_id: expected a worker"},
		{`{"worker_id":0,"event":{"event_id":1,"data":"cleared"}}`, "worker_id: expected a worker"},
		{`{"worker_id":1.5,"event":{}}`, "worker_id: expected an integer"},
		{`{"worker_id":1e3,"event":{}}`, "worker_id: expected an integer"},
		{`{"worker_id":-1,"event":{}}`, "worker_id: expected an integer from 0"},
		{`{"worker_id":"1"}`, "worker_id: expected an integer from 0"},
		{`{"worker_id":01}`, "worker_id: expected an integer without leading zeros"},
		{`{"worker_id":18446744073709551616}`, "worker_id: expected an integer"},
		{`{"worker_id":1}`, "event: missing"},
		{`{"worker_id":1,"event":null}`, "event: expected an object"},
		{`{"worker_id":1,"event":{"data":"cleared"}}`, "event: event_id: missing"},
		{`{"worker_id":1,"event":{"event_id":1}}`, "event: data: missing"},
		{`{"worker_id":1,"storage_tier":"tape"}`, `storage_tier: expected device, host_pinned, disk or external, got "tape"`},
		{`{"worker_id":1,"storage_tier":null}`, "storage_tier: expected a string"},
		{`{"worker_id":1,"residency_domain":null}`, "residency_domain: expected a string"},
		{`{"worker_id":1,"residency_domain":"moon"}`, "residency_domain: expected worker or cache_owner"},
		{`{"worker_id":1,"event":{"event_id":1,"dp_rank":4294967296,"data":"cleared"}}`, "event: dp_rank: expected an integer up to 4294967295"},
		{event(`"gone"`), `data: expected "cleared" or an object, got "gone"`},
		{event(`{}`), "data: expected exactly one of"},
		{event(`{"removed":{"block_hashes":[]},"stored":{"blocks":[]}}`), "expected exactly one of"},
		{event(`{"stored":{}}`), "stored: blocks: missing"},
		{event(`{"stored":{"blocks":[{"block_hash":1,"tokens_hash":2},{"tokens_hash":2}]}}`), "blocks: [1]: block_hash: missing"},
		{event(`{"stored":{"blocks":[{"block_hash":1}]}}`), "blocks: [0]: tokens_hash: missing"},
		{event(`{"stored":{"parent_hash":"x","blocks":[]}}`), "parent_hash: expected an integer"},
		{event(`{"removed":{"block_hashes":[1,2.5]}}`), "block_hashes: [1]: expected an integer"},
		{event(`{"removed":{"block_hashes":[-9223372036854775809]}}`), "block_hashes: [0]: expected an integer"},
		{event(`{"removed":{"block_hashes":[1],"counted":1}}`), "counted: expected true or false"},
		{event(`"cleared"`) + "x", "expected the end"},
		{`{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "nested deeper"},
		{`{"x":-}`, "x: \"-\" is not a number"},
		{`{"x":"\q"}`, "x: "},
		{"{\"x\":\"\n\"}", "control character"},
		{`{"x":"`, `x: expected '"'`},
		{`{"x":nul}`, "x: expected a value"},
	}
	for _, row := range rows {
		_, err := ParseJSON([]byte(row.wire))
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.HasPrefix(err.Error(), "kv event: ") {
			t.Errorf("ParseJSON(%s): got error %v, want one with %q", row.wire, err, row.want)
		}
	}
}

func TestParseMsgpackArrays(t *testing.T) {
	block := func(b []byte) []byte {
		b = msgp.AppendArrayHeader(b, 3)
		b = msgp.AppendUint64(b, 5)
		b = msgp.AppendInt64(b, -1)
		return msgp.AppendNil(b)
	}
	want := &Batch{Source: Source{Worker: 7, Rank: 3}, Seq: 9, Events: []Event{
		{Kind: Stored, Parent: 4, HasParent: true, Blocks: []Block{{5, maxU64}}}}}

	t.Run("short", func(t *testing.T) {
		b := msgp.AppendArrayHeader(nil, 2)
		b = msgp.AppendUint64(b, 7)
		b = msgp.AppendArrayHeader(b, 3)
		b = msgp.AppendUint64(b, 9)
		b = msgp.AppendMapHeader(b, 1)
		b = msgp.AppendString(b, "stored")
		b = msgp.AppendArrayHeader(b, 2)
		b = msgp.AppendUint64(b, 4)
		b = block(msgp.AppendArrayHeader(b, 1))
		b = msgp.AppendUint64(b, 3)
		got, err := ParseMsgpack(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("with tier, domain, start position and more", func(t *testing.T) {
		b := msgp.AppendArrayHeader(nil, 5)
		b = msgp.AppendUint64(b, 7)
		b = msgp.AppendString(b, "disk")
		b = msgp.AppendString(b, "worker")
		b = msgp.AppendArrayHeader(b, 4)
		b = msgp.AppendUint64(b, 9)
		b = msgp.AppendMapHeader(b, 1)
		b = msgp.AppendString(b, "stored")
		b = msgp.AppendArrayHeader(b, 3)
		b = msgp.AppendUint64(b, 4)
		b = msgp.AppendUint64(b, 16)
		b = block(msgp.AppendArrayHeader(b, 1))
		b = msgp.AppendUint64(b, 3)
		b = msgp.AppendString(b, "more")
		b = msgp.AppendMapHeader(b, 0)
		got, err := ParseMsgpack(b)
		if err != nil {
			t.Fatal(err)
		}
		want := *want
		want.Events = []Event{want.Events[0]}
		want.Events[0].Tier = Disk
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("removed", func(t *testing.T) {
		b := msgp.AppendArrayHeader(nil, 2)
		b = msgp.AppendUint64(b, 7)
		b = msgp.AppendArrayHeader(b, 2)
		b = msgp.AppendUint64(b, 9)
		b = msgp.AppendMapHeader(b, 1)
		b = msgp.AppendString(b, "removed")
		b = msgp.AppendArrayHeader(b, 1)
		b = msgp.AppendArrayHeader(b, 1)
		b = msgp.AppendUint64(b, 5)
		got, err := ParseMsgpack(b)
		if err != nil {
			t.Fatal(err)
		}
		want := &Batch{Source: Source{Worker: 7}, Seq: 9, Events: []Event{{Kind: Removed, Blocks: []Block{{ID: 5}}}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestParseMsgpackErrors(t *testing.T) {
	rows := []struct {
		value any
		want  string
	}{
		{map[string]any{"event": map[string]any{"event_id": 1, "data": "cleared"}}, "worker_id: expected a worker"},
		{map[string]any{"worker_id": 1}, "event: missing"},
		{map[string]any{"worker_id": -1}, "worker_id: "},
		{map[string]any{"worker_id": 1, "event": map[string]any{"data": "cleared"}}, "event: event_id: missing"},
		{map[string]any{"worker_id": 1, "event": map[string]any{"event_id": 1}}, "event: data: missing"},
		{map[string]any{"worker_id": 1, "event": map[string]any{"event_id": 1, "data": "gone"}}, `data: expected "cleared"`},
		{map[string]any{"worker_id": 1, "event": map[string]any{"event_id": 1, "data": 7}}, "data: expected exactly one of"},
		{map[string]any{"worker_id": 1, "event": map[string]any{"event_id": 1, "data": map[string]any{"stored": map[string]any{}}}}, "stored: blocks: missing"},
		{map[string]any{"worker_id": 1, "event": map[string]any{"event_id": 1, "data": map[string]any{"removed": map[string]any{"block_hashes": []any{1, "x"}}}}}, "block_hashes: [1]: expected an integer or bytes"},
		{map[string]any{"storage_tier": "tape"}, "storage_tier: expected device"},
		{map[string]any{"residency_domain": nil}, "residency_domain: "},
		{[]any{1, "disk", nil, []any{9, "cleared"}}, "residency_domain: "},
		{[]any{1, nil, []any{9, "cleared"}}, "storage_tier: "},
		{map[string]any{"worker_id": 1, "event": map[string]any{"dp_rank": 1 << 32}}, "dp_rank: expected an integer up to"},
	}
	for _, row := range rows {
		b, err := msgp.AppendIntf(nil, row.value)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ParseMsgpack(b)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("ParseMsgpack(%v): got error %v, want one with %q", row.value, err, row.want)
		}
	}
	b, _ := hex.DecodeString(wireRows[0].hex)
	if _, err := ParseMsgpack(append(b, 0)); err == nil {
		t.Error("a byte after the event is no error")
	}
	// An array that claims more than there is must not be allocated.
	huge, _ := hex.DecodeString("82a9776f726b65725f696407a56576656e7483a86576656e745f69642aa46461746181a772656d6f76656481ac626c6f636b5f686173686573ddffffffff01")
	if n := testing.AllocsPerRun(1, func() { ParseMsgpack(huge) }); n > 50 {
		t.Errorf("%v allocations for an array cut short", n)
	}
}

// What is skipped is what the library skips.
func TestSkipValue(t *testing.T) {
	values := [][]byte{
		{0xc0}, {0xc2}, {0xc3}, {0x00}, {0x7f}, {0xe0}, {0xff},
		msgp.AppendFloat32(nil, 1), msgp.AppendFloat64(nil, 1),
		{0xcc, 1}, {0xcd, 1, 2}, {0xce, 1, 2, 3, 4}, {0xcf, 1, 2, 3, 4, 5, 6, 7, 8},
		{0xd0, 1}, {0xd1, 1, 2}, {0xd2, 1, 2, 3, 4}, {0xd3, 1, 2, 3, 4, 5, 6, 7, 8},
	}
	for _, n := range []int{0, 1, 2, 4, 8, 15, 16, 31, 32, 255, 256, 65535, 65536} {
		s := strings.Repeat("x", n)
		ext := &msgp.RawExtension{Type: 5, Data: []byte(s)}
		raw, err := msgp.AppendExtension(nil, ext)
		if err != nil {
			t.Fatal(err)
		}
		list, table := msgp.AppendArrayHeader(nil, uint32(n)), msgp.AppendMapHeader(nil, uint32(n))
		for range n {
			list = append(list, 0x91, 1)
			table = append(table, 0xa1, 'k', 0x80)
		}
		values = append(values, msgp.AppendString(nil, s), msgp.AppendBytes(nil, []byte(s)), raw, list, table)
	}
	for _, v := range values {
		rest, err := skipValue(append(v[:len(v):len(v)], 0xc0))
		if err != nil || len(rest) != 1 {
			t.Errorf("%.16x…: %d bytes are left, %v", v, len(rest), err)
		}
		for _, n := range []int{0, 1, len(v) / 2, len(v) - 1} {
			if n < len(v) {
				if _, err := skipValue(v[:n]); err == nil {
					t.Errorf("%.16x…: the first %d of %d bytes are a value", v, n, len(v))
				}
			}
		}
	}
	if _, err := skipValue([]byte{0x91, 0xc1}); err == nil {
		t.Error("a byte that begins nothing is a value")
	}
}

func FuzzSkipValue(f *testing.F) {
	f.Add([]byte{0x92, 0x01, 0x81, 0xa1, 'a', 0xc0, 0xff})
	f.Add([]byte{0xc7, 0x01, 0x05, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, wantErr := msgp.Skip(b)
		if errors.Is(wantErr, msgp.ErrRecursion) {
			return // deeper than the library goes
		}
		got, err := skipValue(b)
		if (err == nil) != (wantErr == nil) || err == nil && len(got) != len(want) {
			t.Errorf("%d bytes left, %v; want %d, %v", len(got), err, len(want), wantErr)
		}
	})
}

// roundTrip writes and reads every event of a batch in both forms.
func roundTrip(t *testing.T, b *Batch) {
	t.Helper()
	for i := range b.Events {
		want := &Batch{Source: b.Source, Seq: b.Seq, Events: []Event{b.Events[i]}}
		raw, err := AppendJSON(nil, b.Source, b.Seq, &b.Events[i])
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(raw) {
			t.Fatalf("not JSON: %s", raw)
		}
		got, err := ParseJSON(raw)
		if err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("JSON (-want +got):\n%s", diff)
		}
		if raw, err = AppendMsgpack(raw[:0], b.Source, b.Seq, &b.Events[i]); err != nil {
			t.Fatal(err)
		}
		if got, err = ParseMsgpack(raw); err != nil {
			t.Fatalf("%v: %x", err, raw)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("MessagePack (-want +got):\n%s", diff)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, row := range wireRows {
		f.Add([]byte(row.json))
	}
	f.Add([]byte(` {"x":[1,-2.5e3,true,null,{"\u00e9":"\""}],"worker_id":1,"event":{"event_id":2,"data":{"stored":{"parent_hash":-1,"blocks":[]}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := ParseJSON(raw)
		if err != nil {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("parsed, though not JSON: %q", raw)
		}
		roundTrip(t, b)
	})
}

func FuzzParseMsgpack(f *testing.F) {
	for _, row := range wireRows {
		raw, err := AppendMsgpack(nil, row.batch.Source, row.batch.Seq, &row.batch.Events[0])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte("\x92\x07\x93\x09\x81\xa6stored\x92\xc0\x91\x93\x05\xff\xc0\x03"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := ParseMsgpack(raw)
		if err != nil {
			return
		}
		roundTrip(t, b)
	})
}
