package collect

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Health is how the servers are that numbers come from.
type Health struct {
	// Prometheus says that the server answers and calls itself healthy.
	Prometheus bool `json:"prometheus"`
	// Frontend and Worker say that one of either is scraped.
	Frontend bool `json:"frontend"`
	Worker   bool `json:"worker"`
	// Down are the targets that cannot be scraped, sorted by job and instance.
	Down []Target `json:"down"`
}

// Target is what Prometheus scrapes.
type Target struct {
	Job      string `json:"job"`
	Instance string `json:"instance"`
}

// targetsQuery finds the targets whose jobs are called after Dynamo, as in its setups, or
// after Stator.
const (
	targetsQuery    = `up{job=~".*(dynamo|stator).*"}`
	natTargetsQuery = `up{job=~".*dynamo.*"}`
)

// Health asks Prometheus how it is, and what it scrapes. A job called after Stator is
// frontend and worker in one. With [NAT], both are up if Prometheus knows any target of
// Dynamo.
func (c *Client) Health(ctx context.Context, compat Compat) Health {
	h := Health{Down: []Target{}}
	probe, stop := context.WithTimeout(ctx, min(c.timeout, healthTimeout))
	defer stop()
	if resp, err := c.do(probe, "/-/healthy", nil); err == nil {
		resp.Body.Close()
		h.Prometheus = resp.StatusCode == http.StatusOK
	}
	query := targetsQuery
	if compat == NAT {
		query = natTargetsQuery
	}
	a, err := c.Query(ctx, query, time.Time{})
	if err != nil {
		return h
	}
	for _, s := range a.Series {
		if compat == NAT {
			h.Frontend, h.Worker = true, true
		}
		t := Target{s.Labels["job"], s.Labels["instance"]}
		if len(s.Samples) == 0 || s.Samples[0].Value != 1 {
			h.Down = append(h.Down, t)
			continue
		}
		both := strings.Contains(t.Job, "stator")
		h.Frontend = h.Frontend || both || strings.Contains(t.Job, "frontend")
		h.Worker = h.Worker || both || strings.Contains(t.Job, "worker")
	}
	slices.SortFunc(h.Down, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Instance, b.Instance))
	})
	return h
}
