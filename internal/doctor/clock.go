package doctor

import "time"

// How far a clock may be off before it is worth a word, by events and by the header
// Date, which has whole seconds.
const (
	eventSkew = time.Second
	dateSkew  = 2 * time.Second
)

// clockBy takes in the time that an answer gives.
func (e *exam) clockBy(a *answer) {
	if !a.said.IsZero() {
		skew := a.said.Add(500 * time.Millisecond).Sub(a.at)
		e.skew = &skew
	}
}

// clock judges the engine's clock: by the time in events, and by that of its answers.
// Events that are late while the answers' time is right have been on their way.
func (e *exam) clock() {
	const advice = "synchronise its clock: times of events and traces are compared with ours"
	var lag *time.Duration
	if e.ear != nil {
		for _, l := range e.ear.links.Stats() {
			if l.Timed {
				lag = &l.Lag
			}
		}
	}
	off := func(d *time.Duration, most time.Duration) bool { return d != nil && d.Abs() > most }
	switch {
	case lag == nil && e.skew == nil:
		e.skip(Clock, "nothing tells its time")
	case off(e.skew, dateSkew):
		e.warn(Clock, advice, ClockData{SkewMS: ms(*e.skew), By: "date"}, "%s, by the time of its answers", ahead(*e.skew))
	case off(lag, eventSkew) && (e.skew == nil || *lag < 0):
		e.warn(Clock, advice, ClockData{SkewMS: ms(-*lag), By: "events"}, "%s, by the time of its events", ahead(-*lag))
	case off(lag, eventSkew):
		e.warn(Clock, "see that nothing between the engine and here is slow", ClockData{SkewMS: ms(-*lag), By: "events"},
			"its clock is right, but events are %s old when they arrive", short(*lag))
	case lag != nil:
		e.ok(Clock, ClockData{SkewMS: ms(-*lag), By: "events"}, "events arrive after %s, by both clocks", short(*lag))
	default:
		e.ok(Clock, ClockData{SkewMS: ms(*e.skew), By: "date"}, "within %s, by the time of its answers", short(dateSkew))
	}
}

func ahead(skew time.Duration) string {
	if skew < 0 {
		return "its clock is " + short(-skew) + " behind ours"
	}
	return "its clock is " + short(skew) + " ahead of ours"
}
