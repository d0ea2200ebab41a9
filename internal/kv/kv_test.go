package kv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEventJSON(t *testing.T) {
	rows := []struct {
		name  string
		batch Batch
		wire  string
	}{
		{"stored, first block",
			Batch{Source: Source{Worker: 7}, Seq: 42, Events: []Event{
				{Kind: Stored, Blocks: []Block{{ID: 100, Tokens: 200}}}}},
			`{"worker_id":7,"event":{"event_id":42,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":100,"tokens_hash":200,"mm_extra_info":null}]}},"dp_rank":0}}`},
		{"stored, with parent, full range of uint64",
			Batch{Source: Source{Worker: 1<<64 - 1, Rank: 3}, Seq: 1<<64 - 1, Events: []Event{
				{Kind: Stored, Parent: 1<<64 - 2, HasParent: true, Blocks: []Block{{ID: 1<<64 - 3, Tokens: 1<<64 - 4}}}}},
			`{"worker_id":18446744073709551615,"event":{"event_id":18446744073709551615,"data":{"stored":{"parent_hash":18446744073709551614,"blocks":[{"block_hash":18446744073709551613,"tokens_hash":18446744073709551612,"mm_extra_info":null}]}},"dp_rank":3}}`},
		{"removed",
			Batch{Source: Source{Worker: 7}, Seq: 43, Events: []Event{{Kind: Removed, Blocks: []Block{{ID: 100}}}}},
			`{"worker_id":7,"event":{"event_id":43,"data":{"removed":{"block_hashes":[100]}},"dp_rank":0}}`},
		{"cleared",
			Batch{Source: Source{Worker: 7}, Seq: 44, Events: []Event{{Kind: Cleared}}},
			`{"worker_id":7,"event":{"event_id":44,"data":"cleared","dp_rank":0}}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := row.batch.MarshalEvent(0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.wire, string(got)); diff != "" {
				t.Errorf("wire form (-want +got):\n%s", diff)
			}
			back, err := UnmarshalEvent(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&row.batch, back); diff != "" {
				t.Errorf("round trip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventJSONErrors(t *testing.T) {
	rows := []struct{ wire, want string }{
		{`{`, "kv event"},
		{`{"worker_id":0,"event":{"event_id":1,"data":"cleared"}}`, "worker_id"},
		{`{"worker_id":1,"event":{"event_id":9,"data":"gone"}}`, `"cleared"`},
		{`{"worker_id":1,"event":{"event_id":9,"data":{}}}`, "exactly one"},
		{`{"worker_id":1.5,"event":{}}`, "worker_id"},
	}
	for _, row := range rows {
		_, err := UnmarshalEvent([]byte(row.wire))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("UnmarshalEvent(%s): got error %v, want one with %q", row.wire, err, row.want)
		}
	}
	if _, err := (&Batch{Events: []Event{{}}}).MarshalEvent(0); err == nil {
		t.Error("MarshalEvent of an event without kind: no error")
	}
}
