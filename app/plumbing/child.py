"""Becomes another program that dies with its parent: `python -I -S child.py PARENT SIGNAL USER -- program words…`

Run as a file, not imported, so that it is quick; standard library only. PARENT is the pid that must live, SIGNAL what
the kernel sends when it is gone (Linux only; elsewhere an orphan is found by the next start), USER the name to run as,
or "-" for nobody else. It must not know which program it starts.
"""

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, death_signal, user, separator, *command = sys.argv[1:]
    assert separator == "--"
    if user != "-":
        account = pwd.getpwnam(user)
        os.initgroups(user, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    if sys.platform == "linux":
        # after the change of user, which clears it; it survives exec
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit("the parent is gone already")
    # what Python switched off for itself
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
