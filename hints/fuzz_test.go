package hints

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
)

// Whatever a body is, it comes out as it was, or with an nvext that servers can read and
// everything else as it was.
func FuzzInject(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"model":"m"}`, ` { "a" : [1,{"nvext":2}] , "nvext" : null } `, `[1]`, `{"nvext":{"agent_hints":{"osl":"x","custom":[{}]},"annotations":["osl:5",7]}}`,
		`{"nvext":1,"\u006evext":{"cache_control":{}}}`, `{"a":"\ud800"}`, `{"a":1}{`, "\xff",
	} {
		f.Add([]byte(s), uint8(0), "run")
	}
	carriers := []Carrier{NAT, Strict, Annotations}
	f.Fuzz(func(t *testing.T, body []byte, n uint8, run string) {
		var got []byte
		tr := NewTransport(roundTripper(func(req *http.Request) (*http.Response, error) {
			got, _ = io.ReadAll(req.Body)
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		}), quiet, WithCarrier(carriers[int(n)%len(carriers)]))
		req, err := http.NewRequestWithContext(WithRun(t.Context(), run), http.MethodPost, chatURL, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		if tr.Stats().Hinted == 0 {
			if !bytes.Equal(got, body) {
				t.Fatalf("%q was sent as %q", body, got)
			}
			return
		}
		before, err := openai.ParseObject(body)
		if err != nil {
			t.Fatalf("hints were added to %q: %v", body, err)
		}
		after, err := openai.ParseObject(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		without := func(o *openai.Object) string { return string(o.Edit([]openai.Edit{{Key: "nvext"}}).Bytes()) }
		if a, b := without(&before), without(&after); a != b {
			t.Fatalf("beside nvext, %q became %q", a, b)
		}
		if json.Valid(body) && !json.Valid(got) {
			t.Fatalf("%q became %q, which is no JSON", body, got)
		}
		if before.Get("nvext") == nil {
			if ext, err := nvext.Parse(after.Get("nvext")); err != nil || ext.AgentHints.OSL == nil || len(ext.Ignored) > 0 {
				t.Fatalf("the server reads %s as %+v, %v", after.Get("nvext"), ext, err)
			}
		}
	})
}
