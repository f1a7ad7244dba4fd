package main

import "github.com/spf13/cobra"

// topics returns the pages of help that are about no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:   "connect",
			Short: "Where the vault is, and how to log in",
			Long: `A vault is a storage account and a prefix: the name with which the containers of the vault begin,
and which the engine gives to azblob.New. All commands take them from the same places, each of
which fills in what those before it leave out:

    1. flags                 --endpoint or --connection-string, --prefix, --service-version
    2. a profile             --profile NAME, or PLANVAULT_PROFILE
    3. the environment       PLANVAULT_ENDPOINT or PLANVAULT_CONNECTION_STRING, PLANVAULT_PREFIX,
                             PLANVAULT_SERVICE_VERSION;
                             AZURE_STORAGE_CONNECTION_STRING if there is no other account
    4. the profile "default"

Logins:

    --endpoint https://account.blob.core.windows.net
        The identity of the environment: variables of a service principal, workload identity,
        managed identity, az login. Looking needs the role Storage Blob Data Reader on the account,
        changes need Storage Blob Data Contributor.
    --endpoint 'https://account.blob.core.windows.net/?sv=...&sig=...'
        A shared access signature.
    --connection-string 'AccountName=...;AccountKey=...'
        The account's key, or a signature. A command line can be read by all users of a machine:
        keep secrets in the environment or in a profile.
    --connection-string UseDevelopmentStorage=true
        An emulator on port 10000 of this machine: planvault emulator, or Azurite.

--service-version is for a service that refuses everything with 400, because it does not know the
version of its API that is the default: try 2021-12-02, or 2019-07-07 on Azure Stack Hub.

Profiles are kept in planvault/profiles.json below the user's configuration folder
(PLANVAULT_PROFILES names another file), readable by the user alone:

    planvault profile set prod --endpoint https://account.blob.core.windows.net --prefix my-cluster
    planvault list --profile prod

Commands that copy take a second vault from --to-endpoint, --to-connection-string, --to-prefix,
--to-profile, or PLANVAULT_TO_ENDPOINT and so on. It has no default.

planvault doctor says what is wrong with an account, a login or a clock.`,
		},
		{
			Use:   "exit-codes",
			Short: "What the exit codes mean",
			Long: `    0    The command did what it should.
    1    It failed. The error says what was being done, and what to do.
    2    Wrong usage. Nothing was sent; or a bulk change was not made, because --yes was missing.
    3    The budget of the command is used up, and more is left. Run it again.
    4    The command worked, and the answer is bad: a plan was not found, problems remain.
  130    Interrupted by Ctrl-C or SIGTERM. The last line on stderr says how far the command came.

A script may run every command again after any of them. What is done is not done twice.

    planvault check --profile prod
    case $? in
    0) ;;
    4) page-somebody "the vault has problems" ;;
    *) page-somebody "the check failed" ;;
    esac

A pipe whose reader has seen enough, such as planvault list --all | head, is not a failure.`,
		},
		{
			Use:   "cost",
			Short: "What requests cost, and how to see it",
			Long: `Azure bills each request. --cost prints on stderr what a command has sent:

    $ planvault list --cost
    ...
    cost: 3 requests (3 list), 3 round trips, 0 B sent, 14.2 kB received, $0.000017

US dollars for 10,000 requests, hot tier, LRS; your region's prices are in Azure's price list:

    write    0.055     Put Blob
    list     0.055     List Blobs, List Containers, Create Container
    read     0.0044    Get Blob
    other    0.0044    properties, leases, batches
    delete   0         Delete Blob, Delete Container

Retries count. A page of a listing has up to 5,000 blobs, which are 2,500 plans. Bulk changes say
before they begin how many requests they will send and what these cost.`,
		},
		{
			Use:   "output",
			Short: "What commands print, and where",
			Long: `Results go to stdout. Errors, questions, progress and --cost go to stderr. Progress is shown on
terminals only; in a pipe there is nothing but results and errors.

    --output table    for people: columns may change with any version
    --output json     for programs: one JSON object on each line of a list, one object for a report

A dry run of a bulk change says in JSON, too, how many requests and dollars the change takes. Where
it lists days, that is an object behind them.

Names in JSON are lowerCamelCase. Times are RFC 3339 in UTC; durations are numbers of seconds, with
names that end in Seconds. Fields may be added. PLANVAULT_OUTPUT=json is the same as --output json.

    planvault search --status failed --created-after 24h --output json | jq -r .id

Tables print times as 2006-01-02 15:04:05Z. Control characters in names are shown escaped.`,
		},
	}
}
