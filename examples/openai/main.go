// Command openai deploys a server of a language model, waits until it serves the model, streams
// one reply of it, and deletes it. The server has an API like that of OpenAI, as vLLM has, and
// the client for it is OpenAI's own:
//
//	GOWORK=off go run -C examples/openai . -prompt "Why is the sky blue?"
//
// This command uses a fake of the service inside the program, whose model repeats the prompt. If
// SVC_BASE_URL, SVC_API_TOKEN and SVC_INFERENCE_URL are set, the program uses the real service,
// where instances are billed:
//
//	GOWORK=off go run -C examples/openai . -image vllm/vllm-openai:latest -model Qwen/Qwen3-8B \
//		-command "vllm serve Qwen/Qwen3-8B --port 8000"
//
// If the server wants an API key, set it in CHAT_API_KEY. The program deletes the endpoint on
// every way out: after the reply, on failure and on Ctrl-C. The deletion takes up to 30 s. A
// second Ctrl-C does not stop it (Ctrl-\ does).
//
// Exit codes: 0 done, 1 failed, 2 usage, 4 an endpoint may still be running, 130 interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"example.com/svc"
	"example.com/svc/probe"
	"example.com/svc/svctest"
)

func main() {
	// The stop function is not called: a second signal would end the program during the cleanup.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE) // a closed output pipe must not end the program before the cleanup
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// chat is what to deploy, and what to ask it.
type chat struct {
	image, command string
	port           int
	model          string // name under which the server serves the model
	key            string // API key of the server; empty if it wants none
	prompt         string
	maxPrice       svc.Price // highest price of the flavor in US dollars; zero means any
}

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := chat{key: os.Getenv("CHAT_API_KEY")}
	flags := flag.NewFlagSet("openai", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.image, "image", "", "container image of the server (required on the real service)")
	flags.StringVar(&c.command, "command", "", "start command; default: that of the image")
	flags.IntVar(&c.port, "port", 8000, "port that the server listens on")
	flags.StringVar(&c.model, "model", "demo-model", "model, by the name that the server lists")
	flags.StringVar(&c.prompt, "prompt", "Say hello.", "what to ask the model")
	timeout := flags.Duration("timeout", time.Hour, "time limit for the deployment and the reply")
	flags.Func("max-price", "highest price of the GPU in US dollars; default: any", func(s string) (err error) {
		c.maxPrice, err = svc.ParsePrice(s)
		return err
	})
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return 2
	}
	client, closeFake, err := connect(&c)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "openai:", err)
		return 2
	}
	defer closeFake()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()

	if err := c.run(ctx, client, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "openai:", err)
		return exitCode(ctx, err)
	}
	return 0
}

func exitCode(ctx context.Context, err error) int {
	failed, deployed := errors.AsType[*svc.DeployError](err)
	switch {
	case errors.Is(err, svc.ErrOutcomeUnknown), deployed && failed.Cleanup != svc.CleanupDeleted:
		return 4
	case errors.Is(ctx.Err(), context.Canceled):
		return 130
	}
	return 1
}

// connect makes a client of the real service if SVC_BASE_URL is set. Otherwise it starts a fake
// and makes a client of the fake.
func connect(c *chat) (client *svc.Client, done func(), err error) {
	if os.Getenv("SVC_BASE_URL") != "" {
		if c.image == "" {
			return nil, nil, errors.New("-image is needed on the real service: the container image of the server")
		}
		client, err = svc.NewClientFromEnv()
		return client, func() {}, err
	}
	c.image = "registry.example/chat:1"
	srv := svctest.NewServer(svctest.WithDeployTime(time.Second), svctest.WithChat(c.model))
	return srv.Client(), srv.Close, nil
}

// run deploys the server, streams one reply to out, and deletes the server.
func (c *chat) run(ctx context.Context, client *svc.Client, out, log io.Writer) error {
	flavors, err := client.Flavors.Find(ctx, svc.FlavorQuery{MinAvailable: 1, MaxPrice: c.maxPrice})
	if err != nil {
		return err
	}
	if len(flavors) == 0 {
		return errors.New("no flavor fits: none is in stock, or all are too expensive")
	}
	var auth []probe.Option
	if c.key != "" {
		auth = append(auth, probe.WithHeader("Authorization", "Bearer "+c.key))
	}
	return client.InferenceServices.Use(ctx, svc.CreateInferenceServiceRequest{
		Name:             "chat",
		PaymentType:      svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: flavors[0].FlavorID, ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 1},
		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: c.image, Command: c.command, Port: c.port, GPUNum: 1},
	}, &svc.DeployOptions{WaitOptions: svc.WaitOptions{
		Probe: probe.Model(c.model, auth...),
		OnPoll: func(p svc.Poll) {
			if p.Changed || p.Err != nil {
				_, _ = fmt.Fprintf(log, "%s: %s after %v %s\n", p.ID, p.Status, p.Elapsed.Round(time.Second), orNothing(p.Err))
			}
		},
	}}, func(ctx context.Context, s *svc.InferenceService) error {
		url, err := client.InferenceServices.URL(s.ServiceID)
		if err != nil {
			return err
		}
		return c.stream(ctx, url, out)
	})
}

// stream asks the server at url, and writes its reply to out as it comes.
func (c *chat) stream(ctx context.Context, url string, out io.Writer) error {
	// openai.NewClient is not used here: it would send the OPENAI_API_KEY of the environment,
	// and the headers of OPENAI_CUSTOM_HEADERS, to this server.
	options := []option.RequestOption{option.WithBaseURL(url + "/v1/")}
	if c.key != "" {
		options = append(options, option.WithAPIKey(c.key))
	}
	completions := openai.NewChatCompletionService(options...)
	stream := completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model:    c.model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(c.prompt)},
	})
	defer stream.Close()
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			if _, err := io.WriteString(out, choice.Delta.Content); err != nil {
				return err
			}
		}
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("chat: %w", err)
	}
	_, err := fmt.Fprintln(out)
	return err
}

func orNothing(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}
