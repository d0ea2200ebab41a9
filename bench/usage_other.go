//go:build !linux

package main

import (
	"errors"
	"math"
	"runtime"
	"time"
)

var errNoUsage = errors.New("reading what another process uses needs Linux")

func cpuTime(int) (time.Duration, error) { return 0, errNoUsage }

func memory(int) (pss, rss int64, err error) { return 0, 0, errNoUsage }

func fileLimit() int { return math.MaxInt32 }

func kernel() string { return runtime.GOOS }
