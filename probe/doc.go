// Package probe provides probes for [svc.WaitOptions]: they check that the application of an
// endpoint responds at the URL of the endpoint. The status is "available" when the container
// runs, which can be long before a model is loaded.
//
//	&svc.DeployOptions{WaitOptions: svc.WaitOptions{
//		Probe: probe.Model("my-model", probe.WithHeader("Authorization", "Bearer "+key)),
//	}}
//
// If a probe returns an error, the wait continues until its ctx ends. Two failures end the
// wait with an error of [svc.Permanent], since waiting cannot help:
//   - The list of models that [Model] reads has models, but not the wanted one.
//   - Three responses in a row have the status 401.
//
// A probe sends a GET, without the API token of the client. Each request has a connection of
// its own. A redirect to another scheme, host or port is not followed: it is an error. So the
// headers of [WithHeader] are sent to the endpoint only, and the page of a login server is not
// taken for the application. At most 1 MiB of a response is read. Error messages contain no
// value of WithHeader and no query of a path.
//
// # What a list of models proves
//
// A server of this list has loaded its model when [Model] succeeds:
//
//   - vLLM starts to listen when its engine is ready. A model has the name of
//     --served-model-name, or else that of --model.
//   - The OpenAI frontend of Triton starts when the server is ready. It lists the models of
//     its repository.
//
// For these servers the list of models comes before the model. Let [HTTP] check their health
// first, as shown below:
//
//   - llama.cpp lists its model while it loads it. All its other paths, such as /health, have
//     the status 503 during that time. In router mode it lists models that it loads later, at
//     the first request for them.
//
// The above was read in the sources of these servers. The following was not verified. Text
// Generation Inference starts its web server after the model is loaded, and names the model by
// its --model-id. SGLang responds before its warm-up is over; its /health_generate then fails.
// Ollama, LocalAI and LM Studio list models that are loaded at the first request.
//
// Some servers list their models one after another, as they become ready. Use [HTTP] or your
// own function for them, since [Model] ends the wait when the list has other models only.
//
// Two probes, one after the other:
//
//	healthy, listed := probe.HTTP("/health"), probe.Model("my-model")
//	options.Probe = func(ctx context.Context, url string) error {
//		if err := healthy(ctx, url); err != nil {
//			return err
//		}
//		return listed(ctx, url)
//	}
package probe
