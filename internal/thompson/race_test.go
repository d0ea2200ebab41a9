//go:build race

package thompson

const raceDetector = true
