package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/internal/policyeval"
)

func policyCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "policy",
		Short: "Compare routing policies by what was recorded",
		Long:  `Compare routing policies by the decisions that stator serve recorded.`,
	})
	cmd.AddCommand(policyEvalCommand())
	return cmd
}

func policyEvalCommand() *cobra.Command {
	e := policyEval{metric: string(policyeval.MetricReward), unknown: "skip", maxWeight: policyeval.DefaultMaxWeight, seed: 1}
	cmd := &cobra.Command{
		Use:   "eval FILE...",
		Short: "Estimate how other policies would have done",
		Long: `Estimate from a trace of stator serve how other policies would have done, without
running them. Rows hold all candidates of a decision, how likely each was, and what came
of the choice; a row in which another policy would have been more likely to choose the
same counts for more. Several files are one trace. They may be compressed with gzip or
zstd; - is the standard input.

Policies are
  logged         the recorded one, seen by its own rows: its change is 0
  cost           always the lowest cost, as recorded
  cost:NAME=NUMBER,…
                 the lowest cost with other parameters: overlap_score_credit,
                 overlap_score_credit_decay, prefill_load_scale,
                 decode_active_request_weight, host_cache_hit_weight,
                 disk_cache_hit_weight, shared_cache_multiplier, router_temperature
  thompson       the policy that learns, where it decided or looked on as a shadow
  least-loaded   the fewest requests
  power-of-two   the fewer requests of two that are drawn
  random, round-robin
                 each as likely as another
By default those are compared that all rows know.

The metric is a reward that sums up the cached share of the prompt, the time to the first
token and the time between tokens, or one of these times. Times begin with the choice: a
wait in the queue before it counts for no policy. They are compared by the mean of their
logarithm and shown as the geometric mean, so that single answers that took very long do
not decide.

For each policy there are three estimates. IPS and SNIPS weigh what was recorded; SNIPS
divides by the sum of weights. The value, doubly robust (DR), is what a regression on
prompt, cache and load predicts, corrected by its weighted errors: it holds where either
the probabilities or the regression are right, and as a rule is the nearest of the three.
The change is how far the value is from the same estimate of the recorded policy, row by
row; of times, by which share they are longer. The verdict is better or worse where that
is sure to 95 %, and same for what is the recorded policy.

support is the share of the policy's choices that the recorded one could have made, and
not too rarely to tell; effective is the number of equally weighted rows that would say as
much. Below 200, or with support below 95 %, the estimate is untrusted. What is recorded of
a policy that leaves nothing to chance says little about others.

Decisions are taken one at a time. That another policy fills queues and caches differently
is not in the numbers; to know that, run it part of the time.`,
		Example: `  stator policy eval trace.jsonl
  stator policy eval --policy cost --policy cost:prefill_load_scale=4 --metric ttft trace.jsonl*.zst
  stator policy eval --bootstrap 1000 --json trace.jsonl | jq '.policies[] | {policy, change}'`,
		Args: atLeast(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.run(cmd.InOrStdin(), cmd.OutOrStdout(), args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&e.policies, "policy", nil, "`POLICY` to evaluate, see above; repeat for more")
	flags.StringVar(&e.metric, "metric", e.metric, "`NAME` of what to compare by: reward, ttft, itl or e2e")
	flags.StringVar(&e.unknown, "unknown-cache", e.unknown, "`WHAT` to do with rows whose engine does not say what was cached, for reward: skip or zero")
	flags.StringVar(&e.model, "model", "", "`NAME` of the model to look at")
	flags.Float64Var(&e.maxWeight, "max-weight", e.maxWeight, "`NUMBER` that the weight of a row is bounded by")
	flags.IntVar(&e.resamples, "bootstrap", 0, "take intervals from a `NUMBER` of resamples instead of variances")
	flags.Uint64Var(&e.seed, "seed", e.seed, "`NUMBER` that changes the resamples")
	flags.BoolVar(&e.json, "json", false, "print one JSON object")
	complete(cmd, "policy", policyeval.PolicyNames...)
	complete(cmd, "metric", "reward", "ttft", "itl", "e2e")
	complete(cmd, "unknown-cache", "skip", "zero")
	return cmd
}

// policyEval is what the command line says about an evaluation.
type policyEval struct {
	policies        []string
	metric, unknown string
	model           string
	maxWeight       float64
	resamples       int
	seed            uint64
	json            bool
}

func (e *policyEval) run(stdin io.Reader, stdout io.Writer, files []string) error {
	opts, policies, err := e.resolve()
	if err != nil {
		return &usageError{err: err, hint: true}
	}
	log := policyeval.NewLog(opts)
	for _, name := range files {
		if err := readDecisions(log, stdin, name); err != nil {
			return err
		}
	}
	if len(policies) == 0 {
		policies = log.Policies()
	}
	report, err := log.Evaluate(policies, policyeval.Config{MaxWeight: e.maxWeight, Resamples: e.resamples, Seed: e.seed})
	if err != nil {
		if len(files) == 1 {
			return fmt.Errorf("%s: %w", files[0], err)
		}
		return err
	}
	if e.json {
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		return out.Encode(report)
	}
	_, err = io.WriteString(stdout, report.String())
	return err
}

// resolve returns what the flags mean, or what they cannot.
func (e *policyEval) resolve() (policyeval.Options, []*policyeval.Policy, error) {
	opts := policyeval.Options{Model: e.model, UnknownCacheIsZero: e.unknown == "zero"}
	var err error
	if opts.Metric, err = policyeval.ParseMetric(e.metric); err != nil {
		return opts, nil, fmt.Errorf("--metric: %w", err)
	}
	const mostResamples = 100_000
	switch {
	case e.unknown != "skip" && e.unknown != "zero":
		return opts, nil, fmt.Errorf("--unknown-cache: expected skip or zero, got %q", e.unknown)
	case !(e.maxWeight >= 1) || math.IsInf(e.maxWeight, 0):
		return opts, nil, fmt.Errorf("--max-weight: expected a number of at least 1, got %v", e.maxWeight)
	case e.resamples < 0 || e.resamples > mostResamples:
		return opts, nil, fmt.Errorf("--bootstrap: expected 0 to %d, got %d", mostResamples, e.resamples)
	}
	var policies []*policyeval.Policy
	for _, text := range e.policies {
		p, err := policyeval.ParsePolicy(text)
		if err != nil {
			return opts, nil, fmt.Errorf("--policy: %w", err)
		}
		policies = append(policies, p)
	}
	return opts, policies, nil
}

// readDecisions takes the rows of a file into a log, or those of stdin for -. Errors name it.
func readDecisions(log *policyeval.Log, stdin io.Reader, name string) error {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	if err := log.Read(from); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
