//go:build race

package split

const raceDetector = true
