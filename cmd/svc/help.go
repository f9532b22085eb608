package main

import "github.com/spf13/cobra"

// exitCodesTopic is what "svc help exit-codes" shows.
var exitCodesTopic = &cobra.Command{
	Use:   "exit-codes",
	Short: "the exit codes, and what to do after each",
	Long: `CODE  MAY AN ENDPOINT RUN?   MEANING                                             NEXT
0     see below              done
1     no                     failed for a reason that has no other code          read the message
3     no                     the time limit of --timeout is over                 run it again
4     yes, its ID is not     the outcome of a create is not known                svc ls; then adopt or
      known                                                                      forget, as the message says
5     no                     no such endpoint, or no flavor fits                 svc ls; svc flavors
6     no                     the service did not accept the token                check the token
7     no                     the service cannot be reached or is overloaded      run it again
8     yes                    the endpoint is unavailable or stopped (get, wait,  svc get ID; svc delete ID
                             url)
9     if it ran before       the ledger stopped the command                      svc doctor
10    yes                    an endpoint may be running and billed               as the message says
11    no                     the deployment failed, and its endpoint is deleted  read the message
64    if it ran before       usage error; nothing was sent                       --help of the command
127   no                     the command of "svc run" was not found; nothing     check the command
                             was created
130   no                     interrupted; nothing was created or changed         run it again
2     yes                    the program crashed                                 svc ls
128+n yes                    a signal killed the program (137: SIGKILL)          svc ls

"No" means: none of the endpoints that the command creates, scales or deletes. After 0, an
endpoint runs if that was asked for (deploy, scale, adopt). Commands that only read change
nothing, whatever their code. With "-o json" the field may_be_running says it after every code: it
is false only if it is known that no endpoint of the command is running.

The first signal ends the command, and deletes what it created. Signals within two seconds count
as one, because timeout(1) sends two. A later signal ends the program at once: with 10 or 4 if an
endpoint may be running. The cleanup takes 40 s at most: up to 10 s for the response to a create,
and up to 30 s for the delete.`,
}
