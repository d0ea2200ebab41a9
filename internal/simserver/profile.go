package simserver

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// Profile names how long an engine takes: one of the words below, or a file with
// measurements of one.
type Profile string

// The profiles that are words.
const (
	// Linear is fitted to an 8B model on an H200, and is the default.
	Linear Profile = "linear"
	// Polynomial is another fit to the same measurements, whose decode time goes
	// by the share of the cache in use.
	Polynomial Profile = "polynomial"
	// Fixed has no model behind it: every request sees the same times.
	Fixed Profile = "fixed"
	// Instant is Fixed without any time.
	Instant Profile = "instant"
)

// The times of the profile Fixed, unless others are asked for.
const (
	FixedTTFT = 50 * time.Millisecond
	FixedITL  = 5 * time.Millisecond
)

// Modelled reports whether an engine model stands behind the profile.
func (p Profile) Modelled() bool { return p != Fixed && p != Instant }

// Check reports a profile that is neither a word nor the name of a file of
// measurements. It does not open the file.
func (p Profile) Check() error {
	switch p {
	case Linear, Polynomial, Fixed, Instant:
		return nil
	}
	if ext := filepath.Ext(string(p)); ext != ".json" && ext != ".npz" {
		return fmt.Errorf("expected %s, %s, %s, %s or a file that ends in .json or .npz, got %q", Linear, Polynomial, Fixed, Instant, string(p))
	}
	return nil
}

// Timing returns the timing of an engine with that profile and reads the file if
// it is one. It is nil for a profile that is not modelled.
func (p Profile) Timing() (simengine.Timing, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	switch p {
	case Linear:
		return simengine.Linear, nil
	case Polynomial:
		return simengine.Polynomial, nil
	case Fixed, Instant:
		return nil, nil
	}
	data, err := os.ReadFile(string(p))
	if err != nil {
		return nil, err
	}
	table, err := simengine.ParseTable(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", string(p), err)
	}
	return table, nil
}

// Apply gives cfg the times of the profile, and an engine model if it has one. The
// model's times are divided by speedup; with 0 its passes take no time, while its
// batches and its cache are the same. TTFT and ITL are those of the profile Fixed,
// nil for the usual. A file is read.
func (p Profile) Apply(cfg *Config, speedup float64, ttft, itl *time.Duration) error {
	timing, err := p.Timing()
	if err != nil {
		return err
	}
	switch {
	case timing != nil && speedup == 0:
		cfg.Engine = &simengine.Config{Timing: simengine.Fixed{}}
	case timing != nil:
		cfg.Engine = &simengine.Config{Timing: timing, Speedup: speedup}
	case p == Fixed:
		cfg.TTFT, cfg.ITL = FixedTTFT, FixedITL
		if ttft != nil {
			cfg.TTFT = *ttft
		}
		if itl != nil {
			cfg.ITL = *itl
		}
	}
	return nil
}
