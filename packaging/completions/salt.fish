# Completion of Brine's programs for fish. The programs print the words: see '--complete' in
# doc/operating.md. If they print none, file names are completed.
function __salt_complete
    set -l typed (commandline -opc)
    set -l found ($typed[1] --complete $typed[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
for program in salt salt-api salt-call salt-cp salt-event salt-key salt-master salt-minion salt-run
    complete -c $program -f -a '(__salt_complete)'
end
