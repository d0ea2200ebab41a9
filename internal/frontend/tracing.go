package frontend

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/stator-ai/stator/internal/metrics"
)

// startSpan continues the client's trace with a span for the request, and drops
// trace headers that are malformed.
func (c *call) startSpan() {
	if v := c.r.Header[headerTraceparent]; len(v) > 0 && !validTraceparent(v[0]) {
		c.r.Header.Del(headerTraceparent)
		c.r.Header.Del(headerTracestate)
	}
	if c.cfg.Tracer == nil {
		return
	}
	parent := propagation.TraceContext{}.Extract(c.ctx, propagation.HeaderCarrier(c.r.Header))
	c.ctx, c.span = c.cfg.Tracer.Start(parent, c.routeName(),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("stator.request_id", c.id)))
}

// routeName names the route of the request, one of a few names.
func (c *call) routeName() string {
	switch {
	case c.passage == nil:
		return "POST " + c.endpoint.Path()
	case passed[c.r.URL.Path] != "":
		return c.r.Method + " " + c.r.URL.Path
	default:
		return c.r.Method + " " + versionPrefix + "*"
	}
}

// injectSpan makes the engine's work a child of the request's span.
func (c *call) injectSpan(h http.Header) {
	if c.span == nil {
		return
	}
	leg := c.placement.Last()
	c.span.AddEvent("placed", trace.WithAttributes(
		attribute.Int64("stator.worker", int64(leg.Target.Worker)),
		attribute.Int64("stator.rank", int64(leg.Target.Rank)),
		attribute.Int("stator.attempt", c.placing.Attempt+1)))
	propagation.TraceContext{}.Inject(c.ctx, propagation.HeaderCarrier(h))
}

// spanOutcome notes on the span how the request ended.
func (c *call) spanOutcome(kind metrics.ErrorType) {
	if c.span == nil {
		return
	}
	if c.model != nil {
		c.span.SetAttributes(attribute.String("gen_ai.request.model", c.model.ID))
	}
	c.span.SetAttributes(attribute.Int("gen_ai.usage.output_tokens", c.tokens))
	if kind != metrics.ErrNone && kind != metrics.ErrCancelled {
		c.span.SetStatus(codes.Error, string(kind))
	}
	if !c.first.IsZero() {
		c.span.SetAttributes(attribute.Float64("stator.ttft_seconds", c.first.Sub(c.received).Seconds()))
	}
}

func (c *call) endSpan() {
	if c.span != nil {
		c.span.End()
	}
}
