package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"example.com/svc"
	"example.com/svc/internal/lazy"
)

// spec holds the flags of deploy and run that describe the endpoint to create.
type spec struct {
	flags *pflag.FlagSet

	file, name, image, command, probe string
	port, instances, gpus             int
	flavor                            []string
	lease                             time.Duration
	keep, replace                     bool
	filter                            flavorFilter

	once func() (svc.CreateInferenceServiceRequest, error) // reads the request, which standard input has only once; nil before the first read
}

// noteRequest notes what the request says about the endpoint, for the document of a command that fails early. It does not
// wait for standard input or a pipe.
func (t *tool) noteRequest(s *spec) {
	if info, err := os.Stat(s.file); s.file != "" && (err != nil || !info.Mode().IsRegular()) {
		return
	}
	req, _ := s.read(t.ctx, t.stdin)
	t.note(func(f *facts) {
		f.Name, f.Flavor, f.Instances = req.Name, req.ResourceMetadata.FlavorID, max(req.ResourceMetadata.TargetInstanceNumber, 0)
	})
}

// read is request, and returns the same if it is called again.
func (s *spec) read(ctx context.Context, stdin io.Reader) (svc.CreateInferenceServiceRequest, error) {
	if s.once == nil {
		s.once = sync.OnceValues(func() (svc.CreateInferenceServiceRequest, error) { return s.request(ctx, stdin) })
	}
	return s.once()
}

// flavorFilter holds the flags that select flavors.
type flavorFilter struct{ gpu, region, minCUDA, maxPrice string }

func (q *flavorFilter) add(f *pflag.FlagSet) {
	f.StringVar(&q.gpu, "gpu", "", "part of the name of the GPU")
	f.StringVar(&q.region, "region", "", "region of the data center")
	f.StringVar(&q.minCUDA, "min-cuda", "", "lowest CUDA version")
	f.StringVar(&q.maxPrice, "max-price", "", "highest price in USD, per unit of the price list")
}

func (q *flavorFilter) query() (svc.FlavorQuery, error) {
	query := svc.FlavorQuery{Name: q.gpu, Region: svc.Region(q.region), MinCUDA: q.minCUDA}
	if q.maxPrice != "" {
		if err := json.Unmarshal([]byte(q.maxPrice), &query.MaxPrice); err != nil || query.MaxPrice.Float64() <= 0 {
			return query, usageError{fmt.Errorf("--max-price: %q is not a price, such as 1.50", q.maxPrice)}
		}
	}
	return query, nil
}

func (s *spec) add(f *pflag.FlagSet) {
	s.flags = f
	f.StringVar(&s.file, "file", "", "create request as YAML or JSON, - for standard input; flags win over it")
	f.StringVar(&s.name, "name", "", "name of the endpoint; a unique one can be found again at the provider")
	f.StringVar(&s.image, "image", "", "container image to run")
	f.StringVar(&s.command, "command", "", "start command of the container")
	f.IntVar(&s.port, "port", 8000, "port that the container listens on")
	f.IntVar(&s.instances, "instances", 1, "number of instances")
	f.IntVar(&s.gpus, "gpus", 1, "GPUs of each instance; the service accepts 0 too")
	f.StringSliceVar(&s.flavor, "flavor", nil, "IDs of flavors: the first one that fits, is in stock and is not refused (409, or an error that names it); default: the cheapest such one")
	f.Var((*days)(&s.lease), "lease", "time after which \"svc sweep\" deletes the endpoint, such as 8h or 2d; 0, the default: never")
	f.StringVar(&s.probe, "probe", "", "path of the endpoint, which begins with /: it is available when a GET of it has a 2xx status")
	s.filter.add(f)
}

// request returns the create request of the file and the flags. Its flavor is empty if it has to be picked. The
// default of a flag is used only if the file does not have its field.
func (s *spec) request(ctx context.Context, stdin io.Reader) (svc.CreateInferenceServiceRequest, error) {
	req := svc.CreateInferenceServiceRequest{
		PaymentType:      svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: s.instances},
		DeployMetadata:   svc.CreateDeployMetadata{Port: s.port, GPUNum: s.gpus},
	}
	if s.file != "" {
		if err := readSpec(ctx, s.file, stdin, &req); err != nil {
			return req, badInput(err)
		}
	}
	set(s.flags, "name", &req.Name, s.name)
	set(s.flags, "image", &req.DeployMetadata.ImageURL, s.image)
	set(s.flags, "command", &req.DeployMetadata.Command, s.command)
	set(s.flags, "port", &req.DeployMetadata.Port, s.port)
	set(s.flags, "instances", &req.ResourceMetadata.TargetInstanceNumber, s.instances)
	set(s.flags, "gpus", &req.DeployMetadata.GPUNum, s.gpus)
	for i, id := range s.flavor {
		s.flavor[i] = strings.TrimSpace(id) // A, B
	}
	switch len(s.flavor) {
	case 0: // that of the file
	case 1:
		req.ResourceMetadata.FlavorID = s.flavor[0]
	default:
		req.ResourceMetadata.FlavorID = ""
	}
	if _, err := s.filter.query(); err != nil {
		return req, err
	}
	return req, s.check(req)
}

// set gives a field the value of a flag, if the flag was given.
func set[T any](flags *pflag.FlagSet, name string, field *T, value T) {
	if flags.Changed(name) {
		*field = value
	}
}

// keyRule describes a valid key.
const keyRule = "1 to 64 characters of a-z, 0-9, _ and -"

// check returns a usage error for the first value of a request that the service cannot accept.
func (s *spec) check(req svc.CreateInferenceServiceRequest) error {
	problem := ""
	port, key := req.DeployMetadata.Port, s.flags.Lookup("key")
	switch {
	case req.Name == "":
		problem = "--name is required, here or in --file"
	case req.DeployMetadata.ImageURL == "":
		problem = "--image is required, here or in --file"
	case !utf8.ValidString(req.Name + req.DeployMetadata.ImageURL + req.DeployMetadata.Command):
		problem = "--name, --image and --command must be UTF-8 text"
	case port < 1 || port > 65535:
		problem = "--port must be between 1 and 65535"
	case req.ResourceMetadata.TargetInstanceNumber < 1:
		problem = "--instances must be at least 1"
	case req.DeployMetadata.GPUNum < 0:
		problem = "--gpus must be at least 0"
	case s.replace && (key == nil || !key.Changed):
		problem = "--replace needs --key"
	}
	for _, f := range []struct{ flag, text string }{
		{"name", req.Name}, {"image", req.DeployMetadata.ImageURL}, {"command", req.DeployMetadata.Command}, {"flavor", req.ResourceMetadata.FlavorID},
	} {
		if why := unfit(f.flag, f.text); problem == "" && f.text != "" && why != "" {
			problem = fmt.Sprintf("--%s, here or in --file, %s", f.flag, why)
		}
	}
	if problem == "" {
		return nil
	}
	return usageError{errors.New(problem)}
}

// pickFlavor returns the first of --flavor in stock, or the cheapest flavor that fits. It is called
// only when something has to be created, and again if the service refuses a flavor: see [aboutFlavor].
func (t *tool) pickFlavor(ctx context.Context, s *spec, req svc.CreateInferenceServiceRequest, refused []svc.RefusedFlavor) (string, error) {
	flavors, err := t.fitting(ctx, s, req)
	if err != nil {
		return "", err
	}
	if n := len(refused); n > 0 {
		t.talk.say("flavor %s was refused: %s", printable(refused[n-1].FlavorID), plainText(refused[n-1].Err))
	}
	f, err := t.firstInStock(flavors, req.ResourceMetadata.TargetInstanceNumber, refused)
	if err != nil {
		return "", err
	}
	t.talk.say("flavor %s: %s at %v USD", printable(f.FlavorID), printable(f.DisplayName), f.Billing.USDPriceUnit)
	return f.FlavorID, nil
}

// fitting returns the flavors that fit, in stock or not, in the order in which they are tried.
func (t *tool) fitting(ctx context.Context, s *spec, req svc.CreateInferenceServiceRequest) ([]svc.Flavor, error) {
	query, err := s.filter.query()
	if err != nil {
		return nil, err
	}
	query.MinGPUsPerNode = req.DeployMetadata.GPUNum
	flavors, err := t.client.Flavors.Find(ctx, query)
	if len(s.flavor) > 0 {
		flavors = inOrder(flavors, s.flavor)
	}
	if err == nil && len(flavors) == 0 {
		err = errNoFlavor
	}
	return flavors, err
}

// firstInStock returns the first of the flavors that has so many instances in stock, and that the service has not refused.
func (t *tool) firstInStock(flavors []svc.Flavor, instances int, refused []svc.RefusedFlavor) (f svc.Flavor, err error) {
	stocked := slices.DeleteFunc(slices.Clone(flavors), func(f svc.Flavor) bool { return int64(f.AvailableNum) < int64(instances) })
	left := slices.DeleteFunc(slices.Clone(stocked), func(f svc.Flavor) bool {
		return slices.ContainsFunc(refused, func(r svc.RefusedFlavor) bool { return r.FlavorID == f.FlavorID })
	})
	switch {
	case len(left) > 0:
		return left[0], nil
	case len(stocked) == 0:
		return f, soldOutError{fmt.Sprintf("no flavor that fits has %s in stock. To wait for that: %s, with the same --gpu and so on", count(instances), t.cmd("flavors --wait --min-available %d", instances))}
	case slices.ContainsFunc(refused, func(r svc.RefusedFlavor) bool { return saysSoldOut(r.Err) }):
		return f, soldOutError{"the service says that it has too few instances, although its list of flavors has them in stock"}
	}
	return f, refused[len(refused)-1].Err // the flavor may not be the reason
}

// aboutFlavor reports whether another flavor may be accepted: the service has refused the create with the status of a
// conflict, as if too few instances were in stock, or its error names the flavor. For any other reason a dearer flavor
// does not help.
func aboutFlavor(r svc.RefusedFlavor) bool {
	refused, ok := errors.AsType[*svc.Error](r.Err)
	if !ok || kindOf(r.Err).code != exitFailed {
		return false
	}
	text := strings.ToLower(refused.Code + " " + refused.Message)
	return errors.Is(r.Err, svc.ErrConflict) || strings.Contains(text, "flavor") || strings.Contains(text, strings.ToLower(r.FlavorID))
}

// outOfStock matches what an error says of too few instances in stock.
var outOfStock = lazy.Regexp(`(?i)stock|capacity|sold.?out|insufficient|not enough|instances available`)

// saysSoldOut reports whether the service has refused a create since too few instances are in stock, by the words of
// its error. A conflict may be about something else, such as the name.
func saysSoldOut(err error) bool {
	refused, ok := errors.AsType[*svc.Error](err)
	return ok && errors.Is(err, svc.ErrConflict) && outOfStock().MatchString(refused.Code+" "+refused.Message)
}

// inOrder returns the flavors with these IDs, in the order of the IDs.
func inOrder(flavors []svc.Flavor, ids []string) (chosen []svc.Flavor) {
	for _, id := range ids {
		if i := slices.IndexFunc(flavors, func(f svc.Flavor) bool { return f.FlavorID == id }); i >= 0 {
			chosen = append(chosen, flavors[i])
		}
	}
	return chosen
}
