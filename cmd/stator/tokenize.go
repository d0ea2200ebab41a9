package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stator-ai/stator/internal/hub"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// builtIn is the name of the model that needs no files.
const builtIn = "qwen3"

func tokenizeCommand() *cobra.Command {
	var f tokenizeFlags
	cmd := &cobra.Command{
		Use:   "tokenize [TEXT]",
		Short: "Show the tokens of a text or a chat",
		Long: `Show the tokens that a model sees: those of a text, or those of a chat as the
model's template renders it.

The input is TEXT, a file or the standard input, byte for byte. A JSON object with
messages is taken for a chat request; with --chat it may be the messages alone.

The model is qwen3, which is built in, or one with files: a directory, a
tokenizer.json or tiktoken.model, a model in the cache of Hugging Face's libraries,
or a name on the Hub such as org/name or org/name@revision, which is downloaded into
that cache. HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE count as they do there.

On a terminal the text is printed with each token on another background, and a line
that counts them. Elsewhere, and without colours, there is a line for each token: its
id, a tab, and its bytes as a quoted string. Control characters in the input reach no
terminal.`,
		Example: `  stator tokenize 'Hello, world!'
  stator tokenize --count --file prompt.txt
  stator tokenize --render '{"messages": [{"role": "user", "content": "Hi"}]}'
  stator tokenize --model Qwen/Qwen2.5-7B --ids < prompt.txt
  stator tokenize --decode 9707 11 1879 0`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.decode {
				return nil
			}
			return atMost(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags(), args); err != nil {
				return &usageError{err: err, hint: true}
			}
			return oneLine(f.run(cmd, args))
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.model, "model", builtIn, "`MODEL`: qwen3, a path or a name on the Hub (alias --tokenizer)")
	alias(fs, map[string]string{"tokenizer": "model"})
	fs.StringVar(&f.file, "file", "", "`FILE` with the input, - for the standard input")
	fs.BoolVar(&f.chat, "chat", false, "the input is a chat; --chat=false: it is text, whatever it looks like")
	fs.StringVar(&f.dialect, "dialect", chat.VLLM.String(), "`ENGINE` whose way of rendering chats is followed: vllm, sglang, hf or llamacpp")
	fs.StringVar(&f.template, "chat-template", "", "`FILE` with a chat template in place of the model's")
	fs.BoolVar(&f.noGeneration, "no-generation-prompt", false, "do not open the assistant's turn (add_generation_prompt: false)")
	fs.BoolVar(&f.special, "special", true, "put around a text what the model has there, such as the token that begins a sequence")
	fs.BoolVar(&f.noSpecial, "no-special", false, "do not; with --decode, leave special tokens out of the text")
	fs.StringVar(&f.pattern, "pattern", "", "`REGEXP` that splits text, for tiktoken files of unknown models")
	fs.BoolVar(&f.decode, "decode", false, "the input is token ids, a JSON array or separated by spaces; print their text")
	fs.BoolVar(&f.ids, "ids", false, "print the ids as a JSON array")
	fs.BoolVar(&f.json, "json", false, "print a JSON object: tokenizer, fingerprint, count, ids, pieces, special (indices of special tokens), text")
	fs.BoolVar(&f.count, "count", false, "print how many tokens there are")
	fs.BoolVar(&f.render, "render", false, "print the chat as rendered")
	fs.StringVar(&f.color, "color", "auto", "`WHEN` to colour tokens: auto, always or never")
	for flag, words := range map[string][]string{
		"dialect": chat.Dialects(),
		"color":   {"auto", "always", "never"},
	} {
		// The error is about a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// tokenizeFlags is what the command line says about what to tokenize and what to
// print.
type tokenizeFlags struct {
	model, dialect, template, pattern string
	file                              string
	chat, chatGiven                   bool
	noGeneration                      bool
	special, noSpecial, specialGiven  bool
	decode                            bool
	ids, json, count, render          bool
	color                             string
}

// check refuses what the flags cannot mean together.
func (f *tokenizeFlags) check(fs *pflag.FlagSet, args []string) error {
	f.chatGiven, f.specialGiven = fs.Changed("chat"), fs.Changed("special")
	var outputs []string
	for _, name := range []string{"ids", "json", "count", "render"} {
		if on, _ := fs.GetBool(name); on {
			outputs = append(outputs, "--"+name)
		}
	}
	_, err := chat.ParseDialect(f.dialect)
	switch {
	case err != nil:
		return fmt.Errorf("--dialect: expected vllm, sglang, hf or llamacpp, got %q", f.dialect)
	case f.color != "auto" && f.color != "always" && f.color != "never":
		return fmt.Errorf("--color: expected auto, always or never, got %q", f.color)
	case f.model == "":
		return errors.New("--model: expected qwen3, a path or a name on the Hub")
	case fs.Changed("file") && len(args) > 0:
		return errors.New("--file: expected no input besides it")
	case fs.Changed("file") && f.file == "":
		return errors.New("--file: expected a path")
	case len(outputs) > 1:
		return fmt.Errorf("expected one of %s", strings.Join(outputs, " and "))
	case f.decode && (f.chat || f.render):
		return errors.New("--decode: expected without --chat and --render, which are for chats")
	case f.specialGiven && f.noSpecial:
		return errors.New("--special: expected without --no-special")
	case f.chat && f.specialGiven && f.special:
		return errors.New("--special: expected a text, because a chat's template writes all tokens itself")
	case f.render && f.chatGiven && !f.chat:
		return errors.New("--render: expected a chat, because text stays as it is")
	}
	return nil
}

// tokens is a tokenized prompt.
type tokens struct {
	ids  []uint32
	text []byte
}

// run does what the flags say.
func (f *tokenizeFlags) run(cmd *cobra.Command, args []string) error {
	in, err := f.read(cmd.InOrStdin(), cmd.ErrOrStderr(), args)
	if err != nil {
		return err
	}
	isChat := !f.decode && f.isChat(in.data)
	switch {
	case f.render && !isChat:
		return &usageError{err: fmt.Errorf("--render: expected a chat, but %s is text", in.name)}
	case isChat && f.specialGiven && f.special:
		return &usageError{err: fmt.Errorf("--special: expected a text, but %s is a chat", in.name)}
	}
	m, name, err := f.open(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	out := &tokenOutput{w: bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16), terminal: isTerminal(cmd.OutOrStdout())}
	if f.render {
		c, err := f.parseChat(in.data)
		if err != nil {
			return in.error(err)
		}
		var p tokenize.Prompt
		if err := m.Render(&p, c); err != nil {
			return in.error(err)
		}
		return out.plainText(p.Text)
	}
	t, err := f.tokenize(m, in, isChat)
	if err != nil {
		return in.error(err)
	}
	switch {
	case f.count:
		return out.count(t)
	case f.ids:
		return out.idArray(t)
	case f.json:
		return out.object(name, m.Tokenizer(), t)
	case f.decode:
		return out.plainText(t.text)
	case useColor(f.color, out.terminal, os.Getenv):
		return out.painted(m.Tokenizer(), t)
	default:
		return out.table(m.Tokenizer(), t)
	}
}

// tokenize returns the tokens of the input.
func (f *tokenizeFlags) tokenize(m *local.Model, in *textInput, isChat bool) (tokens, error) {
	switch {
	case f.decode:
		ids, err := parseIDs(in.data)
		if err != nil {
			return tokens{}, err
		}
		if err := checkIDs(m.Tokenizer(), ids); err != nil {
			return tokens{}, err
		}
		return tokens{ids, m.Tokenizer().DecodeText(nil, ids, f.bare())}, nil
	case isChat:
		c, err := f.parseChat(in.data)
		if err != nil {
			return tokens{}, err
		}
		r, err := m.Chat(c, tokenize.Hashing{})
		return tokens{r.IDs, r.Text}, err
	default:
		r, err := m.Complete(in.data, f.bare(), tokenize.Hashing{})
		return tokens{r.IDs, r.Text}, err
	}
}

// bare says that special tokens which are not in the input are not wanted.
func (f *tokenizeFlags) bare() bool { return f.noSpecial || !f.special }

// open returns the model and its name. What is strange about its files is said on
// stderr, as is how a download comes along.
func (f *tokenizeFlags) open(ctx context.Context, stderr io.Writer) (*local.Model, string, error) {
	d, err := chat.ParseDialect(f.dialect)
	if err != nil {
		return nil, "", err
	}
	o := local.Options{
		Chat:       chat.Config{Dialect: d, AllowRequestTemplate: true},
		Pattern:    f.pattern,
		CacheBytes: -1, // one prompt has nothing to share
	}
	if f.template != "" {
		if o.Template, err = readTemplate(f.template); err != nil {
			return nil, "", fmt.Errorf("--chat-template: %w", err)
		}
	}
	if f.model == builtIn {
		m, err := qwen3.Open(o)
		return m, builtIn, err
	}
	var client *hub.Client
	if _, err := os.Stat(f.model); err != nil { // then it is to be a name on the Hub
		if client, err = hub.FromEnv(os.Getenv); err != nil {
			return nil, "", err
		}
		bar := hub.NewBar(stderr)
		defer bar.Close()
		client.Progress, client.Waiting = bar.Update, bar.Wait
	}
	m, err := local.Open(ctx, f.model, client, o)
	if err != nil {
		return nil, "", err
	}
	if w := m.Tokenizer().Warnings(); len(w) > 0 {
		more := ""
		if len(w) > 1 {
			more = fmt.Sprintf(" (and %d more)", len(w)-1)
		}
		fmt.Fprintf(stderr, "stator: warning: %s%s\n", appendVisible(nil, []byte(w[0]), ""), more)
	}
	if err := m.Stale(); err != nil {
		fmt.Fprintf(stderr, "stator: warning: the Hub cannot be asked whether %s has changed: %s\n", f.model, appendVisible(nil, []byte(err.Error()), ""))
	}
	return m, m.Source(), nil
}

// readTemplate returns the source of a chat template that can be used. Line ends
// are made one kind, as they are where templates are usually read.
func readTemplate(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	src := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text))
	if src == "" {
		return "", fmt.Errorf("%s: expected a template, got an empty file", path)
	}
	if _, err := chat.New(chat.Config{Template: src}); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return src, nil
}
