// Package jinja renders chat templates: an interpreter for the part of Jinja2
// that the templates of language models use, with Python's values, and byte for
// byte the output that Jinja2 3.1 gives in the environment of Hugging Face's
// transformers. That environment is sandboxed and immutable, drops the newline
// after a block tag and the blanks before one, has the tags break, continue and
// generation, a tojson without HTML escapes, and the functions raise_exception
// and strftime_now.
//
// [Compile] parses a template once; a [Template] is immutable and renders for
// any number of goroutines. [Template.Render] runs it over a [Dict] of
// variables within the bounds of [Options]: a template that loops, recurses or
// builds huge strings ends in a [LimitError].
//
// Scopes follow the code that Jinja2 generates rather than a tidier model: a
// name belongs to the innermost for, macro, with, set or filter block that
// stores it, if blocks share the scope around them, and a macro sees the
// variables around its definition as they are when it is called.
//
// What Jinja2 has and this package does not is an error that names it, never an
// approximation: template inheritance and imports, autoescape blocks, the
// filters that print HTML links or random items. The text of run-time errors is
// not Python's; that rendering fails is.
package jinja
