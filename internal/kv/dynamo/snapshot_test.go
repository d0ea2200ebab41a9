package dynamo

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stator-ai/stator/internal/kv"
)

// snapshotHex is a list of the event of storedHex.
const snapshotHex = "010000000000000007000000000000002a00000000000000000000000001000000000000006400000000000000c8000000000000000000000000"

func readAll(b []byte) ([]RouterEvent, error) {
	var out []RouterEvent
	for e, err := range ReadSnapshot(b) {
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
	return out, nil
}

func writeAll(t testing.TB, events []RouterEvent) []byte {
	t.Helper()
	var s Snapshot
	for i := range events {
		if err := s.Add(&events[i]); err != nil {
			t.Fatal(err)
		}
	}
	return s.Bytes()
}

func TestSnapshot(t *testing.T) {
	worker := kv.Source{Worker: 7}
	for _, tc := range []struct {
		name   string
		events []RouterEvent
		wire   string
	}{
		{"stored 42 of worker 7",
			[]RouterEvent{{worker, 42, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 100, Tokens: 200}}}}}, snapshotHex},
		{"nothing", nil, "0000000000000000"},
		{"parent, removed, cleared", []RouterEvent{
			{worker, 1, kv.Event{Kind: kv.Stored, Parent: 5, HasParent: true, Blocks: []kv.Block{}}},
			{worker, 2, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{ID: 1<<64 - 1}}}},
			{kv.Source{Worker: 7, Rank: 3}, 3, kv.Event{Kind: kv.Cleared}}},
			"0300000000000000" +
				"0700000000000000" + "0100000000000000" + "00000000" + "010500000000000000" + "0000000000000000" + "00000000" +
				"0700000000000000" + "0200000000000000" + "01000000" + "0100000000000000" + "ffffffffffffffff" + "00000000" +
				"0700000000000000" + "0300000000000000" + "02000000" + "03000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := writeAll(t, tc.events)
			if diff := cmp.Diff(tc.wire, hex.EncodeToString(b)); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
			got, err := readAll(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.events, got); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
	if n := len(snapshotHex) / 2; n != 58 {
		t.Errorf("%d bytes, want 58", n)
	}
}

// with returns the stored event's snapshot with bytes in place of those from an
// offset on; rest keeps what is after them.
func with(t testing.TB, from int, middle, rest string) []byte {
	return append(unhex(t, snapshotHex)[:from:from], unhex(t, middle+rest)...)
}

func TestReadSnapshot(t *testing.T) {
	stored := RouterEvent{kv.Source{Worker: 7}, 42, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 100, Tokens: 200}}}}
	mm := "01" + "0200000000000000" + // two objects
		"0900000000000000" + "0100000000000000" + "0200000000000000" + "0600000000000000" +
		"0a00000000000000" + "0000000000000000"
	whole := unhex(t, snapshotHex)
	for _, tc := range []struct {
		name string
		wire []byte
		err  string // part of it; empty: the event above
	}{
		{"a block with objects", with(t, 53, mm, "00000000"), ""},
		{"objects that are not there", with(t, 53, "01"+"ffffffffffffffff", "00000000"), "length: expected at most 0 elements in 4 bytes, got 18446744073709551615"},
		{"ranges that are not there", with(t, 53, "01"+"0100000000000000"+"0900000000000000"+"0000000000000010", "00000000"), "length: "},
		{"bytes after it", append(bytes.Clone(whole), 0), "bytes after its end"},
		{"events that are not there", append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, whole[8:]...), "number of events: length: expected at most 2 elements in 50 bytes"},
		{"blocks that are not there", with(t, 29, "ffffffffffffff7f", ""), "length: expected at most 0 elements"},
		{"a variant that does not exist", with(t, 24, "03000000", "00000000000000000000000000"), "data: expected variant 0, 1 or 2, got 3"},
		{"an option that is neither", with(t, 28, "02", "00000000000000000000000000"), "option: expected 0 or 1, got 2"},
		{"worker 0", append(append(bytes.Clone(whole[:8]), make([]byte, 8)...), whole[16:]...), "worker_id: expected a worker"},
		{"nothing", nil, "number of events: unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readAll(tc.wire)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]RouterEvent{stored}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for n := range whole {
		if got, err := readAll(whole[:n]); err == nil {
			t.Errorf("the first %d bytes read as %v", n, got)
		}
	}
}

func TestSnapshotAddErrors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		event kv.Event
		err   string
	}{
		{"host memory", kv.Event{Kind: kv.Stored, Tier: kv.Host}, "tier: "},
		{"ids alone", kv.Event{Kind: kv.Stored, Bare: true}, "blocks: expected hashes"},
		{"no kind", kv.Event{}, "kind: "},
		{"a kind that does not exist", kv.Event{Kind: kv.Cleared + 1}, "kind: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Snapshot
			if err := s.Add(&RouterEvent{Event: tc.event}); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got error %v, want one with %q", err, tc.err)
			}
			if got := hex.EncodeToString(s.Bytes()); got != "0000000000000000" {
				t.Errorf("the snapshot became %s", got)
			}
		})
	}
}

// A loop that ends early ends the reading.
func TestReadSnapshotBreak(t *testing.T) {
	one := RouterEvent{kv.Source{Worker: 1}, 1, kv.Event{Kind: kv.Cleared}}
	n := 0
	for range ReadSnapshot(writeAll(t, []RouterEvent{one, one, one})) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d events", n)
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add(unhex(f, snapshotHex))
	f.Add(with(f, 53, "01"+"0100000000000000"+"0900000000000000"+"0100000000000000"+"0200000000000000"+"0600000000000000", "00000000"))
	f.Add(writeAll(f, []RouterEvent{
		{kv.Source{Worker: 7}, 2, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{ID: 1}}}},
		{kv.Source{Worker: 7, Rank: 3}, 3, kv.Event{Kind: kv.Cleared}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := readAll(b)
		if err != nil {
			return
		}
		back, err := readAll(writeAll(t, events))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(events, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
