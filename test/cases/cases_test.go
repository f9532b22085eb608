// Package cases_test is the table of the mistakes that clients of services like this
// one made in public, with the tests that keep this client from making them.
package cases_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// fieldCase is a mistake that clients of services like this one made in public,
// and the tests that keep this one from making it.
type fieldCase struct {
	id      string // at least one of the tests has it in its name
	mistake string
	tests   []string // in any folder of the repository
}

// fieldCases are all of them. The tests named here are the main ones of a case;
// others may touch it.
var fieldCases = []fieldCase{
	// Retries and transport
	{id: "B01", mistake: "an upload is kept in memory to be able to repeat it", tests: []string{"TestB01_UploadsAreNotHeldInMemory"}},
	{id: "B02", mistake: "a create is sent again after its answer was lost, and is billed twice", tests: []string{
		"TestB02_CreateNeverSentTwice", "TestB02_RegisterIsNotRepeated", "TestOutcomeUnknown", "TestMatrix", "TestMatrixWire",
		"TestB02_HTTP2DoesNotRepeatACreate", "TestB02_ChangeOfProtocol", "TestB02_TransportsThatTryTwice", "TestB02_StaleConnection",
		"TestB02_HTTP2DoesNotRepeatWhatHasNoBody", "TestB02_WrappersCannotRepeat", "TestB02_TurnedDownAfterAnotherWay",
	}},
	{id: "B03", mistake: "when all attempts have failed, nobody learns what the last one said", tests: []string{"TestB03_LastResponseIsKept", "TestMatrix"}},
	{id: "B04", mistake: "bodies of failures stay open, and each costs a connection", tests: []string{"TestB04_ConnectionsAreReused", "TestB04_PoolKeepsItsConnections", "TestB04_HTTP2DoesNotStorm", "TestNothingIsLeftBehind", "TestMatrixWire"}},
	{id: "B05", mistake: "Retry-After freezes a call, or counts for nothing", tests: []string{"TestB05_RetryAfter", "TestMatrix", "TestMatrixRetryAfterIsTold"}},
	{id: "B06", mistake: "a cancelled call goes on sleeping", tests: []string{
		"TestB06_EndOfContext", "TestB06_ContextEndedBefore", "TestB06_CancelEndsEveryWaitAtOnce", "TestB06_DeadContextSendsNothing",
		"TestB06_CancelDuringAPoll", "TestMatrixContext",
	}},
	{id: "B07", mistake: "links with their keys turn up in errors and logs, and the library chatters", tests: []string{
		"TestB07_SecretsStayHidden", "TestB07_SecretsOfLinks", "TestB07_Silence", "TestB07_TransfersAreSilent", "TestB07_FormerTokens", "TestB07_TokensOfASource",
		"TestB07_CallersErrors", "TestB07_EscapedSecrets", "TestB07_NothingShowsASecret", "TestMatrix",
	}},
	{id: "B08", mistake: "a connection dies in the pool, and the next call with it", tests: []string{"TestB08_StaleConnection"}},
	{id: "B09", mistake: "errors that will not pass are tried again and again", tests: []string{"TestB09_HopelessErrors", "TestMatrixNoConnection", "TestMatrixRedirectLoop"}},
	{id: "B10", mistake: "a redirected change becomes a read, and its success is reported", tests: []string{"TestB10_RedirectedChange", "TestB10_UploadRedirects", "TestMatrixRedirect"}},
	{id: "B11", mistake: "the token goes where a redirect leads", tests: []string{"TestB11_TokenStaysAtHome", "TestMatrixRedirect"}},

	// Uploads and downloads
	{id: "B12", mistake: "storage gets the token, and refuses the upload for it", tests: []string{"TestB12_NoTokenToStorage"}},
	{id: "B13", mistake: "a header that nobody asked for breaks the signature", tests: []string{"TestB13_OnlyTheHeadersAskedFor", "TestB13_SignedContentType"}},
	{id: "B14", mistake: "an upload without a length is refused", tests: []string{"TestB14_EveryReaderHasALength"}},
	{id: "B15", mistake: "the caller's file is closed or at its end when it is to be sent again", tests: []string{"TestB14_EveryReaderHasALength", "TestB15_PositionAfterFailure"}},
	{id: "B16", mistake: "an expired link looks like something else", tests: []string{"TestB16_ExpiredLink", "TestFiles_StoryOfAnExpiredLink", "TestFilesDownload_RenewsItsLink"}},
	{id: "B17", mistake: "one vendor's storage wants another header and says 201", tests: []string{"TestB17_StorageFlavours"}},
	{id: "B18", mistake: "the time limit of a call cuts a healthy transfer", tests: []string{"TestB18_IdleTimeout", "TestB18_DownloadIdle", "TestB18_SwitchingProtocolsHangsNothing"}},
	{id: "B19", mistake: "half a download, or an error page, is taken for the file", tests: []string{"TestB19_BrokenDownloadIsNoFile", "TestB19_DiskFull", "TestMatrixDownloadInPieces"}},
	{id: "B20", mistake: "the proxy of the environment is not used", tests: []string{"TestB20_ProxyOfTheEnvironment"}},
	{id: "B21", mistake: "a client or a default of others is changed behind their back", tests: []string{"TestB21_ClientsAreIndependent", "TestB21_TransfersChangeNothingShared"}},
	{id: "B22", mistake: "an answer without end is read into memory", tests: []string{"TestB22_EndlessBodies", "TestB22_ManyEmptyRecords", "TestLargestResponse", "TestMatrixWire"}},

	// Waits, and instances that cost money
	{id: "B23", mistake: "one bad answer ends a long wait", tests: []string{"TestB23_OneBadPollDoesNotEndTheWait", "TestB23_SuccessResetsTheFailureCount"}},
	{id: "B24", mistake: "a wait goes on after the failure", tests: []string{"TestB24_FailureStatesEndTheWait"}},
	{id: "B25", mistake: "a status that is new breaks the record or the wait", tests: []string{"TestB25_UnknownStatusMeansNotYet", "TestUnknownValuesSurvive"}},
	{id: "B26", mistake: "a new id is not found yet, and the instance is given up", tests: []string{"TestB26_NotFoundRightAfterCreate", "TestB26_OtherCallsTakeNotFoundAtItsWord"}},
	{id: "B27", mistake: "all that is known of a wait is that its time was up", tests: []string{"TestB27_TimeoutTellsTheStory"}},
	{id: "B28", mistake: "waits look in step, too seldom, or without pause", tests: []string{
		"TestB28_ManyWaitsDoNotPollTogether", "TestB28_IntervalsGrowUpToTheirLimit", "TestB28_ReadinessIsNoticedSoon", "TestB28_OddIntervalsAreNoBusyLoop",
	}},
	{id: "B29", mistake: "a deployment fails, and the id of what runs is lost", tests: []string{"TestB29_FailedDeployKeepsTheID"}},
	{id: "B30", mistake: "the clean-up uses the context that is dead", tests: []string{
		"TestB30_CleanupOutlivesTheContext", "TestB30_CleanupRespectsRetryAfter", "TestB30_CleanupThatNeverSucceeds", "TestB30_DeleteOnFailure",
	}},

	// Lists
	{id: "B31", mistake: "the same page comes for ever", tests: []string{"TestB31_SamePageForEver", "TestB31_SamePageUntilTheTotalIsReached", "TestB31_EveryPageEmpty"}},
	{id: "B32", mistake: "the page size and the total are believed", tests: []string{"TestB32_PageSizeAndTotalAreHints", "TestB32_UnsetPageSizeIsNotSent"}},
	{id: "B33", mistake: "an error in the middle looks like the end of the list", tests: []string{"TestB33_ErrorInTheMiddle"}},
	{id: "B34", mistake: "leaving a loop leaves a goroutine", tests: []string{"TestB34_BreakLeavesNothing", "TestB34_BreakAfterErrorAndCancel"}},

	// JSON
	{id: "B35", mistake: "a time in another form loses the record", tests: []string{"TestB35_Timestamps", "TestB35_JobTimes", "TestTimeForms"}},
	{id: "B36", mistake: "an object where a list was expected, null, or nothing at all", tests: []string{"TestB36_NullAndMissing", "TestB36_JobOutputs", "TestB36_JobParts", "TestB36_EmptyFileLists"}},
	{id: "B37", mistake: "a number comes as text", tests: []string{"TestB37_NumbersAsText", "TestInt"}},
	{id: "B38", mistake: "a page of a proxy is taken for an answer, or breaks the decoder", tests: []string{"TestB38_NotWhatWasPromised", "TestB38_FilesResponsesThatAreNone", "TestMatrix"}},
	{id: "B39", mistake: "a zero that was meant is not sent", tests: []string{
		"TestServices_CreateBody", "TestServices_UpdateBody", "TestB39_VideoJobBody", "TestB39_ImageJobBody", "TestB39_ListQuery",
	}},
	{id: "B40", mistake: "an empty body is an error, or hides one", tests: []string{"TestB40_EmptyBodies", "TestB40_FileDeleteTakesAnyBody", "TestMatrix"}},
	{id: "B41", mistake: "large numbers and prices are rounded", tests: []string{"TestB41_BigNumbers", "TestB41_OriginalRequestKeepsItsDigits", "TestB41_PublicFileNumbers", "TestPrice"}},

	// Addresses and credentials
	{id: "B42", mistake: "an id changes what an address means", tests: []string{"TestB42_IDs", "TestB42_JobIDs", "TestB42_FileIDs"}},
	{id: "B43", mistake: "a part of the base address is lost, or a slash is doubled", tests: []string{"TestB43_BaseURL"}},
	{id: "B44", mistake: "the token goes out in the clear", tests: []string{"TestB44_PlainHTTP"}},
	{id: "B45", mistake: "a token has white space around it", tests: []string{"TestB45_Tokens"}},

	// Test tooling
	{id: "B46", mistake: "mocks do not catch the requests, or disturb each other", tests: []string{"TestB46_Gock", "TestB46_GockTakenOff", "TestB46_SparseTransport", "TestB46_Parallel", "TestInMemoryHostsAreTheOnlyOnes"}},

	// Connections
	{id: "C01", mistake: "a dead HTTP/2 connection is used until the deadline", tests: []string{"TestC01_DeadConnection"}},
	{id: "C02", mistake: "a proxy that refuses to connect is tried to the end", tests: []string{"TestC02_OwnTransportNamesTheProxy", "TestC02_ProxyRefusesToConnect"}},

	// What proves that a record is deleted, failed or empty
	{id: "C03", mistake: `"not found" about the key, the route or the whole API is taken for a deletion`, tests: []string{"TestC03_BaseURLWithVersion", "TestC03_NotDeletedByNotFoundOfEverything", "TestC03_ProofNeedsAResponseInBetween"}},
	{id: "C04", mistake: "the recipe for recovery after an unknown outcome loses an instance", tests: []string{"TestC04_RecoveryOfWhatIsNotReadableYet"}},
	{id: "C05", mistake: "a proxy's HTML page with a 4xx status is taken for the service's refusal", tests: []string{"TestC05_PagesForPeople"}},
	{id: "C06", mistake: "a response with status 200 and an error in its body counts as success", tests: []string{"TestC06_SuccessThatHoldsAnError"}},
	{id: "C07", mistake: `"not deleted", written as a date, reads as deleted`, tests: []string{"TestC07_NotDeletedWrittenAsADate"}},
	{id: "C08", mistake: "a status in another letter case or with white space is another status", tests: []string{"TestC08_JobStatusInAnyCase", "TestC08_StatusInAnotherForm"}},
	{id: "C09", mistake: "one odd value costs the record, the list, or the reason", tests: []string{
		"TestC09_BooleansOfAnotherType", "TestC09_DeepResponsesAreCheap", "TestC09_DoStaysStrict", "TestC09_InformationNeverFailsARecord",
		"TestC09_ManyOddRecords", "TestC09_PricesThatCannotBeRead", "TestC09_TextOfAnotherType", "TestC09_TimesThatCannotBeRead", "TestC09_WhatDecidesStillFails",
	}},
	{id: "C10", mistake: "an update that is answered without a record is an error", tests: []string{"TestC10_UpdateWithoutARecord"}},

	// Tokens, bodies and files
	{id: "C11", mistake: "the token is rotated during a wait, and the wait ends", tests: []string{"TestC11_TokenIsRotated"}},
	{id: "C12", mistake: "a token in quotes, or a placeholder, is sent", tests: []string{"TestC12_PlaceholdersAreNoTokens"}},
	{id: "C13", mistake: "names that are not UTF-8 are changed on the way", tests: []string{"TestC13_NamesThatAreNotUTF8"}},
	{id: "C14", mistake: "a reader that stands at its end uploads nothing, with success", tests: []string{"TestC14_ReaderAtItsEnd"}},
	{id: "C15", mistake: "a download replaces a symbolic link, or fails on a mount without a hint", tests: []string{"TestC15_FileThatIsAMount", "TestC15_LinkWithoutATarget"}},
	{id: "C16", mistake: "a Content-Encoding that nobody asked for gives an error about JSON", tests: []string{"TestC16_ContentEncodingNobodyAskedFor"}},
	{id: "C17", mistake: "white space around an id leads to another path", tests: []string{"TestC17_IDs"}},
	{id: "C18", mistake: "the page after the last one is an error after all jobs came", tests: []string{"TestC18_PastTheLastPage"}},

	// The surface
	{id: "C19", mistake: "zero values stop or delete what runs", tests: []string{"TestC19_ZeroValuesDestroyNothing"}},
	{id: "C20", mistake: "errors that a test makes by hand panic", tests: []string{"TestC20_ErrorsMadeByHand"}},
	{id: "C21", mistake: "an error does not say which record it is about", tests: []string{"TestC21_ErrorsNameTheRecord"}},
	{id: "C22", mistake: "an outage uses up the retry budget for hours, and nothing says so", tests: []string{"TestC22_RetryBudget"}},
	{id: "C23", mistake: "attempts cannot be counted or told apart", tests: []string{"TestC23_AttemptsCanBeCounted"}},
	{id: "C24", mistake: `a probe can only say "not yet"`, tests: []string{"TestC24_PermanentEndsAWait"}},
	{id: "C25", mistake: "the statuses of jobs that mean failure stand only in prose", tests: []string{"TestC25_JobStatuses", "TestC25_SeededFailures", "TestC25_SeededJobHasToBeOne", "TestC25_SeededJobs"}},
	{id: "C26", mistake: "waits and transfers take no request options", tests: []string{"TestC26_TransfersTakeRequestOptions", "TestC26_WaitsTakeRequestOptions", "TestC26_WithDefaultHeader"}},
	{id: "C27", mistake: "an example of a rollout loses the ID of what runs", tests: []string{"TestC27_KilledAtAnyStep", "TestC27_OldStaysInTheLedgerUntilItIsDeleted"}},
	{id: "C28", mistake: "an exit code has two meanings", tests: []string{"TestC28_EachExitCodeHasOneMeaning", "TestC28_Delete", "TestC28_Scale", "TestC28_ReadmeAndHelp"}},
	{id: "C29", mistake: "one name stands for two things", tests: []string{"TestC29_Names"}},
	{id: "C30", mistake: "the tests pass on one version of Go only", tests: []string{"TestC30_VersionsOfGo"}},
	{id: "C31", mistake: "metrics use the attributes of servers", tests: []string{"TestC31_MetricsHaveTheLabelsOfClients", "TestC31_SpansHaveTheAttributesOfClients"}},

	// Money, found by random conversations
	{id: "C32", mistake: `Deploy says "deleted" of an endpoint that was never readable`, tests: []string{"TestC32_NeverReadIsNotDeleted"}},
	{id: "C33", mistake: "Delete returns nil, and nothing was deleted", tests: []string{"TestC33_LostDeleteOfANewEndpoint"}},
	{id: "C34", mistake: "a 404 whose HTML body is cut off counts as the service's own", tests: []string{"TestC34_CutPagesProveNothing"}},
	{id: "C35", mistake: "a record from before a change ends the wait for it", tests: []string{"TestC35_StaleReadsDoNotEndScaling"}},
	{id: "C36", mistake: "a grace is measured when the response arrives", tests: []string{"TestC36_GraceCountsFromTheRequest"}},
	{id: "C37", mistake: "a panic in a hook after a create loses the id", tests: []string{"TestC37_PanicsDoNotLoseTheID", "TestC37_ResultIsKnownWhenAHookPanics"}},
	{id: "C38", mistake: "a create that is answered with another record is believed", tests: []string{"TestC38_AnotherRecord"}},
	{id: "C39", mistake: `408 after a create counts as "certainly not made"`, tests: []string{"TestC39_RequestTimeoutAfterACreate"}},
	{id: "C40", mistake: "one single 404 ends a wait for a deletion", tests: []string{"TestC40_OneNotFoundIsNotEnough"}},

	// Seen with real servers
	{id: "C41", mistake: "an expired presigned URL is reported as a wrong signature", tests: []string{"TestC41_TimesOfALink", "TestC41_WordsOfStorage"}},
	{id: "C42", mistake: "connections that the server ends early use up the retry budget", tests: []string{"TestC42_GoAwayStorm"}},
	{id: "C43", mistake: "the fragment of another program's URL is redacted", tests: []string{"TestC43_FragmentsOfOtherPrograms"}},
}

// Each case is there, once and in order, and each test that it names exists.
func TestFieldCases(t *testing.T) {
	tests := declaredTests(t)
	const first = 46 // B01 to B46
	require.Len(t, fieldCases, first+43)
	rows := map[string][]string{}
	for i, c := range fieldCases {
		want := fmt.Sprintf("B%02d", i+1)
		if i >= first {
			want = fmt.Sprintf("C%02d", i+1-first)
		}
		require.Equal(t, want, c.id)
		require.NotEmpty(t, c.mistake, c.id)
		require.Contains(t, strings.Join(c.tests, " "), "Test"+c.id+"_", "no test is named after %s", c.id)
		seen := map[string]bool{}
		for _, name := range c.tests {
			require.True(t, tests[name], "%s: there is no %s", c.id, name)
			require.False(t, seen[name], "%s: %s is there twice", c.id, name)
			seen[name] = true
		}
		rows[c.id] = c.tests
	}

	// And a test that is named after a case stands in its row.
	for name := range tests {
		id, _, _ := strings.Cut(strings.TrimPrefix(name, "Test"), "_")
		if row, ok := rows[id]; ok {
			require.Contains(t, row, name)
		}
	}
}

// Names that read alike do not mean two things, and the README has those that people look for.
func TestC29_Names(t *testing.T) {
	srv := svctest.NewInMemory()
	defer srv.Close()
	id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(1))
	_, err := srv.Client().InferenceServices.Get(t.Context(), id, svc.WithMaxAttempts(1))
	require.ErrorIs(t, err, svc.ErrServer, "what the service sends during an outage")
	require.NotErrorIs(t, err, svc.ErrUnavailable, "a status of an endpoint")

	readme := read(t, "README.md")
	for _, name := range []string{
		"WithLogger", "WithAttemptHook", "WithTransportWrapper", "WithDefaultHeader", "OnCreate", "OnFailure", "Probe", "Permanent", "Files.Replace", "UploadFile",
	} {
		require.Contains(t, readme, name)
	}
}

// The tests run on each version of Go that the README promises, and the next one is
// among those that .ci/run fetches.
func TestC30_VersionsOfGo(t *testing.T) {
	promised := regexp.MustCompile(`two latest releases of Go, (1\.\d+) and (1\.\d+)`).FindStringSubmatch(read(t, "README.md"))
	require.Len(t, promised, 3)
	require.Contains(t, read(t, "go.mod"), "\ngo "+promised[1]+"\n")
	require.Contains(t, read(t, ".github/workflows/ci.yml"), fmt.Sprintf("go: [%q, %q]", promised[1]+".x", promised[2]+".x"))
	require.Contains(t, read(t, ".ci/run"), "go=go"+promised[2]+".")
}

// read gives a file of the repository.
func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(text)
}

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && isTest(f) {
				tests[f.Name.Name] = true
			}
		}
		return nil
	}))
	return tests
}

// isTest reports whether go test runs f, as a test and not as a benchmark.
func isTest(f *ast.FuncDecl) bool {
	params := f.Type.Params.List
	if f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || len(params) != 1 {
		return false
	}
	pointer, ok := params[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := pointer.X.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "T"
}
