package vllmtest_test

import (
	"strconv"
	"testing"

	"github.com/stator-ai/stator/internal/vllmtest"
)

// TestServer runs all that one server is enough for.
func TestServer(t *testing.T) {
	s := vllmtest.Start(t,
		"--block-size", strconv.Itoa(blockSize), "--num-gpu-blocks-override", strconv.Itoa(blocks),
		"--scheduling-policy", "priority", "--prefix-caching-hash-algo", "sha256_cbor")
	t.Run("events", func(t *testing.T) { testEvents(t, s) })
	t.Run("names of blocks", func(t *testing.T) { testNames(t, s) })
	t.Run("texts", func(t *testing.T) { testTexts(t, s) })
	t.Run("chats", func(t *testing.T) { testChats(t, s) })
	t.Run("adapter", func(t *testing.T) { testAdapter(t, s) })
}

// TestDevelopmentMode runs what only a server in development mode has.
func TestDevelopmentMode(t *testing.T) {
	vllmtest.Dir(t)
	t.Setenv("VLLM_SERVER_DEV_MODE", "1")
	s := vllmtest.Start(t, "--block-size", strconv.Itoa(blockSize), "--num-gpu-blocks-override", strconv.Itoa(blocks))
	t.Run("cleared", func(t *testing.T) { testCleared(t, s) })
	t.Run("configuration", func(t *testing.T) { testConfiguration(t, s) })
}
