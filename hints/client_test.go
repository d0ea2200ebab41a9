package hints

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"
)

func textLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}

func TestC11Client(t *testing.T) {
	for _, timeout := range []time.Duration{0, 120 * time.Second} {
		for _, verify := range []bool{true, false} {
			cfg := DefaultConfig()
			cfg.VerifySSL = verify
			want := 600 * time.Second
			if timeout != 0 {
				cfg.RequestTimeout, want = timeout, timeout
			}
			client, err := NewClient(cfg)
			if err != nil {
				t.Fatal(err)
			}
			base := client.Transport.(*http.Transport)
			if insecure := base.TLSClientConfig != nil && base.TLSClientConfig.InsecureSkipVerify; insecure == verify {
				t.Errorf("verify %t: insecure %t", verify, insecure)
			}
			if base.TLSHandshakeTimeout != want {
				t.Errorf("handshake may take %s, want %s", base.TLSHandshakeTimeout, want)
			}
			if client.Timeout != 0 {
				t.Errorf("a stream may take %s", client.Timeout)
			}
		}
	}
	cfg := DefaultConfig()
	cfg.RequestTimeout = 0
	if _, err := NewClient(cfg); err == nil {
		t.Error("a timeout of 0 was accepted")
	}
}

func TestDisabledClientHasNoWrapper(t *testing.T) {
	client, err := NewClient(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := client.Transport.(*Transport); ok {
		t.Error("hints are added although they are off")
	}
}
