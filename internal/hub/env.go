package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FromEnv returns the client that the environment describes, by the names that
// Hugging Face's libraries use: HF_ENDPOINT; HF_TOKEN, or else the file that
// HF_TOKEN_PATH names, or $HF_HOME/token; HF_HUB_CACHE, or else $HF_HOME/hub;
// HF_HOME itself, or else huggingface in XDG_CACHE_HOME or ~/.cache;
// HF_HUB_OFFLINE. It reads variables through getenv and nothing else but the file
// of the token, which need not exist.
func FromEnv(getenv func(string) string) (*Client, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return v
			}
		}
		return ""
	}
	user := first("HOME", "USERPROFILE")
	expand := func(path string) string {
		path = os.Expand(path, getenv)
		if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) && user != "" {
			path = user + rest
		}
		return path
	}
	home := expand(first("HF_HOME"))
	if base := expand(first("XDG_CACHE_HOME")); home == "" && base != "" {
		home = filepath.Join(base, "huggingface")
	}
	if home == "" && user != "" {
		home = filepath.Join(user, ".cache", "huggingface")
	}
	under := func(name string, vars ...string) string {
		if v := expand(first(vars...)); v != "" {
			return v
		}
		if home == "" {
			return ""
		}
		return filepath.Join(home, name)
	}
	c := &Client{
		Endpoint: first("HF_ENDPOINT"),
		Token:    first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
		CacheDir: under("hub", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
		Offline:  truth(first("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")),
	}
	if path := under("token", "HF_TOKEN_PATH"); c.Token == "" && path != "" {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("hub token: %w", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	return c, nil
}

// truth is how Python's library reads a switch.
func truth(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
