"""A consumer of 2016: it takes everything, and notes it."""

from recipient import Recipient, main

if __name__ == '__main__':
    main(Recipient)
