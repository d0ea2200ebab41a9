package llamatest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// patience bounds how long something is waited for that is to come soon.
const patience = 20 * time.Second

// post sends a JSON document and returns status and answer.
func post(t *testing.T, url string, doc any) (int, []byte) {
	t.Helper()
	status, body, err := send(url, doc)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// send is post for goroutines that may not end the test.
func send(url string, doc any) (int, []byte, error) {
	body, err := json.Marshal(doc)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	return read(resp)
}

// get fetches a document.
func get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	status, body, err := read(resp)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

func read(resp *http.Response) (int, []byte, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// decode reads a JSON document into v.
func decode(t *testing.T, doc []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(doc, v); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
}

// How often a condition is looked at.
const (
	often  = 2 * time.Millisecond
	rarely = 1500 * time.Millisecond
)

// eventually waits until a condition holds, which it looks at again and again.
func eventually(t *testing.T, within time.Duration, what string, every time.Duration, holds func() bool) {
	t.Helper()
	for start := time.Now(); ; {
		<-time.After(every)
		if holds() {
			return
		}
		if time.Since(start) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// usage is what an answer says about itself.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *usage) cached() int {
	if u == nil || u.Details == nil {
		return -1
	}
	return u.Details.Cached
}

// timings is what llama.cpp adds to it.
type timings struct {
	Cached int `json:"cache_n"`
	Prompt int `json:"prompt_n"`
}
