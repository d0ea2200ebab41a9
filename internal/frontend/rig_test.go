package frontend

import (
	"strings"
	"testing"
)

const hello = `{"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`

func TestRigAnswers(t *testing.T) {
	rg := newRig(t, rigConfig{engines: 2})
	resp, body := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 200 || !strings.Contains(body, `"completion_tokens":3`) {
		t.Fatalf("status %d, body %s", resp.StatusCode, body)
	}
	_, body = rg.post(t, "/v1/chat/completions", strings.Replace(hello, `{`, `{"stream":true,`, 1))
	if !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Fatalf("stream: %s", body)
	}
	if n := rg.booked(); n != 0 {
		t.Errorf("%d slots still booked", n)
	}
}
