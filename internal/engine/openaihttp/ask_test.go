package openaihttp

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
)

func TestInt(t *testing.T) {
	for text, want := range map[string]Int{
		`7`: 7, `-7`: -7, `7.9`: 7, `"16"`: 16, `1e3`: 1000, `1000000000000000019884624838656`: 1 << 53, `-1e999`: -1 << 53,
		`null`: 0, `"None"`: 0, `true`: 0, `[]`: 0, `{"a":1}`: 0, `""`: 0, `"NaN"`: 0,
	} {
		var got struct{ N Int }
		if err := json.Unmarshal([]byte(`{"n":`+text+`}`), &got); err != nil || got.N != want {
			t.Errorf("%s: %d, %v, want %d", text, got.N, err, want)
		}
	}
	if Share(math.NaN()) != 0 || Share(2) != 1 || Share(-1) != 0 || Count(math.NaN()) != 0 || Count(-3) != 0 || Count(math.Inf(1)) != math.MaxInt32 {
		t.Error("a share or a count is out of its bounds")
	}
}

func TestAsk(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/odd":
			w.Write([]byte(`{"a":"text","b":2}`))
		case "/list":
			w.Write([]byte(`[1]`))
		case "/error":
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(`{"a":1}`))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	e := open(t, srv.URL).(*Engine)
	defer e.Close()
	for path, want := range map[string]bool{"/odd": true, "/list": false, "/error": false, "/none": false} {
		var got struct{ A, B int }
		if ok := e.Ask(t.Context(), path, &got); ok != want || ok && got.B != 2 {
			t.Errorf("%s: %+v, %t", path, got, ok)
		}
	}
}

// TestModelsOfAdapters: an adapter has the context of its model.
func TestModelsOfAdapters(t *testing.T) {
	got := Models([]Card{{ID: "sql", Parent: "m"}, {ID: "m", MaxModelLen: 4096}, {ID: "law", Parent: "gone"}, {ID: "x", MaxModelLen: -5}})
	want := []engine.Model{{ID: "sql", Parent: "m", ContextLength: 4096}, {ID: "m", ContextLength: 4096}, {ID: "law", Parent: "gone"}, {ID: "x"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzCards(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096,"stator":{"ranks":1e9}}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var list struct{ Data []Card }
		if lenient(json.Unmarshal(doc, &list)) != nil {
			return
		}
		for _, m := range (&Engine{}).Describe(t.Context(), list.Data).Models {
			if m.ContextLength < 0 || m.Ranks < 0 || m.Ranks > maxRanks {
				t.Errorf("%+v", m)
			}
		}
	})
}
